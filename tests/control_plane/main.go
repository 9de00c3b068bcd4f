// The programs of a Kubernetes control plane in one binary, for tests: the first argument chooses.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

var programs = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllers.NewControllerManagerCommand()) },
}

func main() {
	if len(os.Args) > 1 {
		if run, found := programs[os.Args[1]]; found {
			os.Args = os.Args[1:]
			os.Exit(run())
		}
	}
	fmt.Fprintln(os.Stderr, "usage: kubetest etcd|kube-apiserver|kube-controller-manager [flags]")
	os.Exit(2)
}
