"""What a language model can improve in a finished document: title levels, and tables that go on across pages."""

from __future__ import annotations

from mineru_engine.enhance.run import enhance

__all__ = ("enhance",)
