"""One page over one vision-language model: protocol, transports, extraction."""
