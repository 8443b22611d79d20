"""What `nodevet k8s` does with the API server."""
