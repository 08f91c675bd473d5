"""Run GGUF language models on your own machine."""
