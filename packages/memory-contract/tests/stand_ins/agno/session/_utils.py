def resolve_run_index(session, run):
    return [each.run_id for each in session.runs].index(run.run_id)
