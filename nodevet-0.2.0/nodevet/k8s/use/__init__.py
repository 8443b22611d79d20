"""The use cases of `nodevet k8s`, which ask the API server."""
