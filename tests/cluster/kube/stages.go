// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	nodelease "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
)

// printStages prints what kwok has to be told (--config): that nodes are Ready and renew their leases,
// and that pods are Running at once, Succeeded when they belong to a Job, and gone when deleted.
func printStages() {
	for _, stage := range []string{
		nodefast.DefaultNodeInit, nodelease.DefaultNodeHeartbeatWithLease,
		podfast.DefaultPodReady, podfast.DefaultPodComplete, podfast.DefaultPodDelete,
	} {
		fmt.Printf("---\n%s\n", stage)
	}
}
