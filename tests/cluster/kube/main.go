// SPDX-License-Identifier: Apache-2.0

// kube is a whole Kubernetes control plane, a node's programs and kubectl in one binary, for tests.
// The name it is called by says which one it is: tests/cluster makes a link for each.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"

	// Without it they refuse --logging-format=json.
	_ "k8s.io/component-base/logs/json/register"
	// Their /metrics lack the client's requests and throttling otherwise.
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
)

// Kubernetes' own programs are cobra commands that component-base runs.
var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

// The others have ways of their own.
var others = map[string]func(){
	"etcd":    func() { etcdmain.Main(os.Args) },
	"kubectl": runKubectl,
	"kwok":    runKwok,
	"stages":  printStages,
}

func runKubectl() {
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) // its flags are read before the command exists
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

// kwok reads --config before its command exists, with a flag set that passes over all the others.
func runKwok() {
	// cobra adds these to any command, and there is a --version of Kubernetes' among them.
	pflag.CommandLine = pflag.NewFlagSet("none", pflag.ContinueOnError)
	early := pflag.NewFlagSet("early", pflag.ContinueOnError)
	early.ParseErrorsAllowlist.UnknownFlags = true
	early.Usage = func() {}
	ctx, _ := kwoklog.InitFlags(context.Background(), early)
	ctx, err := kwokconfig.InitFlags(ctx, early)
	if err != nil {
		fail(err)
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(early)
	if err := command.ExecuteContext(ctx); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func main() {
	name := filepath.Base(os.Args[0])
	if run, found := others[name]; found {
		run()
		return
	}
	if command, found := commands[name]; found {
		os.Exit(cli.Run(command()))
	}
	fail(fmt.Errorf("kube: called as %q: call it by the name of one of its programs (tests/cluster/README.md)", name))
}
