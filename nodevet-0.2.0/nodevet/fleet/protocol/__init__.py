"""The wire: the program that is sent to a node, its commands and answers, and frames."""
