"""The Grafana dashboards of `deploy/grafana`, as code: `python -m tests.dashboards` writes them.

A tool of this repository, not of a running fleet: plain dataclasses that become JSON, no library.
A unit test holds that the files are what this package says, another that Grafana can take them; an
end-to-end test asks a real Prometheus every query and wants an answer.
"""
