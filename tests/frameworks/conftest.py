from elastic.conftest import gang, job_path

__all__ = ["gang", "job_path"]
