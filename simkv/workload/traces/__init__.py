"""One reader a file. Each has ``read(source, options) -> Workload``; simkv/workload/registry.py knows them all."""
