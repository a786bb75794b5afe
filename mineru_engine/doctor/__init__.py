"""What an installation consists of, and whether it works. Computes findings; printing is for others."""

from __future__ import annotations

from mineru_engine.doctor.finding import Finding, Level, without_credentials
from mineru_engine.doctor.run import examine

__all__ = ("Finding", "Level", "examine", "without_credentials")
