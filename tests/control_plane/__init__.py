"""A real Kubernetes control plane on this machine: etcd, kube-apiserver, controller manager.

`build` makes the programs (one Go binary, kept in the user's cache), `programs` finds them, `plane`
runs them, `cluster` is what tests hold, `objects` makes what tests need in it.
"""
