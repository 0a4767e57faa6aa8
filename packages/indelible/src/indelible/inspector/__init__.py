"""`indelible inspect`: pages that show a store in a browser (extra `inspector`)."""
