"""`indelible inspect`: pages that show a store in a browser (extra `inspector`).

`static/htmx.min.js` is htmx 2.0.11 as it was released, under the licence in `static/htmx.LICENSE`.
"""
