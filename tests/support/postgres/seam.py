"""A function that stands between a blocking store and every statement that it sends."""


def put_between(backend, seam):
    """Have `seam(op, run)` called for every statement; it sends it with `run()`."""
    borrow = backend.pool.borrow

    def borrow_watched(lease, deadline):
        connection = borrow(lease, deadline)
        if "_execute" not in vars(connection):
            execute = connection._execute
            connection._execute = lambda op: seam(op, lambda: execute(op))
        return connection

    backend.pool.borrow = borrow_watched
