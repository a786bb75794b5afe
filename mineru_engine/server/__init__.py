"""Many callers: a job server over the engine. Needs the extra ``serve``; touches neither PDFium nor a model itself."""
