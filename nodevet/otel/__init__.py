"""OpenTelemetry: send a recorded run as a trace, and its findings as log records."""
