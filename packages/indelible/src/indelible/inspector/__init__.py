"""`indelible inspect`: pages that show a store in a browser (extra `inspector`).

`static/htmx.min.js` is htmx 2.0.11 as it was released, under the licence in `static/htmx.LICENSE`.
"""

from indelible.core.extras import need_extra

with need_extra("inspector"):
    import jinja2  # noqa: F401 (used by the modules of this package)
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
