"""From a user's own file to a corrected one: proposals, their review, and the fix."""

from .proposal import Proposal, Share, Source, Suspect, digest

__all__ = ["Proposal", "Share", "Source", "Suspect", "digest"]
