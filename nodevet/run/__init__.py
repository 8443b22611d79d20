"""Use cases: what nodevet does, without a terminal.

They take data and callbacks for progress, and return data; an error is an exception whose message
says what to do. The command line, a scheduler's hook and tests call the same functions.
"""
