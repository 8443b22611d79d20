"""Reaching nodes. With fixes/ the only importer of pyinfra, and only in the shard process."""
