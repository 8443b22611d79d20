"""Send a recorded run to OpenTelemetry: a trace, and a log record for each finding."""
