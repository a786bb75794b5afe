"""Killable worker processes for native code."""
