"""indelible under the frameworks that people use: a module for each, imported when it is asked for.

Each keeps its framework's own meaning and takes any store that is open, blocking or async. What a
framework hands over is stored as a message that every other part of indelible understands, with
the framework's exact form beside it.
"""
