"""Models as files and shapes: GGUF headers, ggml's types, published shapes, quantization mixes, synthetic files."""
