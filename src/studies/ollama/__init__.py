"""What does Ollama choose by itself?"""
