"""The history as a folder of linked pages that any web server can serve."""
