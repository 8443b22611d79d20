"""`python -m nodevet`."""

from nodevet.cli import main

if __name__ == "__main__":
    main()
