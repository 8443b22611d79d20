"""What nodevet remembers about a fleet, and the reports on it; pure.

`nodevet.store` keeps these values and gives them back.
"""
