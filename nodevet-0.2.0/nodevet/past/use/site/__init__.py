"""Write the history as a folder of linked pages."""
