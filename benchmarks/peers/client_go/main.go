// Copies all pods of a server by a shared informer, as a contestant of the benchmarks:
// bench/contestant.py tells what it is asked and what it answers.
//
//	client_go URL [--events N] [--body] [--relist N] [--changed F]
//	          [--mode typed|untyped|protobuf] [--watch-list=true|false]
//
// All settings are client-go's own, but for the limit on requests, which is off, and for
// JSON in mode typed: of a server that has it, a typed client takes protobuf unless told
// otherwise, which is mode protobuf. With --watch-list=false it lists as it did before
// streamed lists: first what the server's watch cache has, in one answer, later in pages.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

type options struct {
	url       string
	events    int
	body      bool
	relist    int
	changed   float64
	mode      string
	watchList bool
}

func main() {
	opts := parsed(os.Args[1:])
	choose(opts.watchList)
	informer, start := prepared(opts)
	handler := &handler{body: opts.body}
	if opts.body {
		check(informer.AddIndexers(cache.Indexers{"node": nodes}))
	}

	registration, err := informer.AddEventHandler(handler)
	check(err)
	synced := registration.HasSyncedChecker().Done()
	check(informer.SetWatchErrorHandlerWithContext(failingUntil(synced)))
	say(map[string]any{"at": "start"}, settled())

	began := time.Now()
	start(make(chan struct{}))
	<-synced
	took := seconds(began)
	objects := len(informer.GetStore().ListKeys())
	say(map[string]any{"at": "synced", "seconds": took, "objects": objects}, settled())

	if opts.events > 0 {
		watch(opts, handler)
	}
	if opts.relist > 0 {
		relist(opts, handler)
	}
	say(map[string]any{"at": "end", "digest": digest(informer.GetStore().List())})
}

// watch takes the time of the changes that the server sends when it is asked.
func watch(opts options, handler *handler) {
	over := handler.expect(opts.events)
	began := time.Now()
	ask(opts.url + "/bench/go")
	<-over
	took := seconds(began)
	latencies := handler.latencies
	handler.latencies = nil
	say(map[string]any{
		"at": "watched", "seconds": took, "events": opts.events, "latencies": latencies,
	}, settled())
}

// relist takes the time, and the peak of memory, of a new list after an expired watch.
func relist(opts options, handler *handler) {
	over := handler.expect(opts.relist)
	forgetPeak()
	began := time.Now()
	ask(opts.url + "/bench/relist?changed=" + strconv.FormatFloat(opts.changed, 'g', -1, 64))
	<-over
	took := seconds(began)
	high := peak() // before anything is let go of
	say(map[string]any{"at": "relisted", "seconds": took, "peak": high}, settled())
}

func parsed(arguments []string) options {
	opts := options{}
	flags := flag.NewFlagSet("client_go", flag.ExitOnError)
	flags.IntVar(&opts.events, "events", 0, "ask for the changes, and wait for so many")
	flags.BoolVar(&opts.body, "body", false, "index by node, and read the phase")
	flags.IntVar(&opts.relist, "relist", 0, "ask for a relist, and wait for so many changes")
	flags.Float64Var(&opts.changed, "changed", 1, "the share of the pods that it changes")
	flags.StringVar(&opts.mode, "mode", "typed", "typed, untyped or protobuf")
	flags.BoolVar(&opts.watchList, "watch-list", true, "stream the first list")

	// The flags of Go end at the first argument without a dash: the address.
	check(flags.Parse(arguments))
	if flags.NArg() > 0 {
		opts.url = flags.Arg(0)
		check(flags.Parse(flags.Args()[1:]))
	}
	if opts.url == "" || flags.NArg() > 0 {
		check(errors.New("one address of a server is needed"))
	}
	return opts
}

// choose says how to list. The environment decides it, and is read once, when first asked.
func choose(watchList bool) {
	check(os.Setenv("KUBE_FEATURE_WatchListClient", strconv.FormatBool(watchList)))
	if features.FeatureGates().Enabled(features.WatchListClient) != watchList {
		check(errors.New("this client-go does not take the way of listing from the environment"))
	}
}

// prepared returns the informer of all pods, of a factory, and what starts it.
func prepared(opts options) (cache.SharedIndexInformer, func(<-chan struct{})) {
	config := &rest.Config{
		Host:            opts.url,
		BearerToken:     os.Getenv("BENCH_TOKEN"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: os.Getenv("BENCH_CA")},
		QPS:             -1,
	}
	switch opts.mode {
	case "typed":
		config.ContentType = runtime.ContentTypeJSON
	case "protobuf":
		config.Wrap(onlyProtobuf)
	case "untyped":
		client, err := dynamic.NewForConfig(config)
		check(err)
		factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
		pods := factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods"))
		return pods.Informer(), factory.Start
	default:
		check(fmt.Errorf("there is no mode %q", opts.mode))
	}

	client, err := kubernetes.NewForConfig(config)
	check(err)
	factory := informers.NewSharedInformerFactory(client, 0)
	return factory.Core().V1().Pods().Informer(), factory.Start
}
