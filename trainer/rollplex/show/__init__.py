"""``rollplex show``: a step's prompts, frames and responses as one HTML page."""

from rollplex.show.page import show

__all__ = ["show"]
