"""What nodevet remembers of a fleet, and the stories that it tells of that; pure.

`nodevet.store` keeps these values and gives them back.
"""
