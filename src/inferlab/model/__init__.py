"""What a model is before it runs: GGUF headers, ggml's types, published shapes, quantization mixes, synthetic files."""
