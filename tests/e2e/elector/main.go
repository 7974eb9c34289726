// Leads by a Lease, as programs of client-go do, and writes while it leads:
//
//	elector NAMESPACE LEASE IDENTITY
//
// The kubeconfig is that of KUBECONFIG. It prints a line when it begins to lead. SIGTERM
// ends its writes first, then releases the Lease. Its durations are the usual ones.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// How often a leader writes.
const pause = 50 * time.Millisecond

func main() {
	if len(os.Args) != 4 {
		fail(fmt.Errorf("usage: elector NAMESPACE LEASE IDENTITY"))
	}

	namespace, lease, identity := os.Args[1], os.Args[2], os.Args[3]
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	fail(err)
	client, err := kubernetes.NewForConfig(config)
	fail(err)

	// Two contexts: who releases first and stops then may write after another leads.
	working, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	electing, release := context.WithCancel(context.Background())
	defer release()
	ended := make(chan struct{})

	go func() {
		<-working.Done()
		select {
		case <-ended:
		case <-time.After(time.Second): // it did not lead
		}
		release()
	}()

	leaderelection.RunOrDie(electing, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: lease},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				fmt.Println("leads")
				defer close(ended)
				write(working, leading, client, namespace, identity)
			},
			OnStoppedLeading: func() { fmt.Println("stopped") },
		},
	})
}

// write creates one object after the other until either context ends.
func write(working, leading context.Context, client kubernetes.Interface, namespace, identity string) {
	for working.Err() == nil && leading.Err() == nil {
		turn := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "turn-"},
			Data:       map[string]string{"leader": identity},
		}
		_, err := client.CoreV1().ConfigMaps(namespace).Create(leading, turn, metav1.CreateOptions{})
		if err != nil {
			fmt.Println("a write failed:", err)
		}

		time.Sleep(pause)
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "elector:", err)
		os.Exit(1)
	}
}
