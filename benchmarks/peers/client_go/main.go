// Copies all pods of a server by a shared informer, as a contestant of the benchmarks.
// bench/contestant.py describes its protocol.
//
//	client_go URL [--events N] [--body] [--relist N] [--changed F]
//	          [--mode typed|untyped|protobuf] [--watch-list=true|false]
//	client_go encode <JSON >PROTOBUF
//
// All settings are the defaults of client-go, except the rate limit, which is off, and JSON
// in mode typed: by default a typed client requests protobuf, which is mode protobuf. With
// --watch-list=false it lists without streaming: first from the server's watch cache, in one
// response, later in pages.
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
	if len(os.Args) == 2 && os.Args[1] == "encode" {
		encode(os.Stdin, os.Stdout)
		return
	}

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
	report(map[string]any{"at": "start"}, settled())

	began := time.Now()
	start(make(chan struct{}))
	<-synced
	took := seconds(began)
	objects := len(informer.GetStore().ListKeys())
	report(map[string]any{"at": "synced", "seconds": took, "objects": objects}, settled())

	if opts.events > 0 {
		watch(opts, handler)
	}
	if opts.relist > 0 {
		relist(opts, handler)
	}
	report(map[string]any{"at": "end", "digest": digest(informer.GetStore().List())})
}

// watch measures the changes that the server sends on request.
func watch(opts options, handler *handler) {
	over := handler.expect(opts.events)
	began := time.Now()
	command(opts.url + "/bench/go")
	<-over
	took := seconds(began)
	latencies := handler.latencies
	handler.latencies = nil
	report(map[string]any{
		"at": "watched", "seconds": took, "events": opts.events, "latencies": latencies,
	}, settled())
}

// relist measures the time and the peak of memory of a relist after an expired watch.
func relist(opts options, handler *handler) {
	over := handler.expect(opts.relist)
	forgetPeak()
	began := time.Now()
	command(opts.url + "/bench/relist?changed=" + strconv.FormatFloat(opts.changed, 'g', -1, 64))
	<-over
	took := seconds(began)
	high := peak() // before garbage is released
	report(map[string]any{"at": "relisted", "seconds": took, "peak": high}, settled())
}

func parsed(arguments []string) options {
	opts := options{}
	flags := flag.NewFlagSet("client_go", flag.ExitOnError)
	flags.IntVar(&opts.events, "events", 0, "number of changes to request")
	flags.BoolVar(&opts.body, "body", false, "index nodes, read phases")
	flags.IntVar(&opts.relist, "relist", 0, "changes of a relist")
	flags.Float64Var(&opts.changed, "changed", 1, "their share")
	flags.StringVar(&opts.mode, "mode", "typed", "typed, untyped or protobuf")
	flags.BoolVar(&opts.watchList, "watch-list", true, "stream the first list")

	// Go's flags end at the first argument without a dash, the address.
	check(flags.Parse(arguments))
	if flags.NArg() > 0 {
		opts.url = flags.Arg(0)
		check(flags.Parse(flags.Args()[1:]))
	}
	if opts.url == "" || flags.NArg() > 0 {
		check(errors.New("pass the URL of one server"))
	}
	return opts
}

// choose selects the kind of list by an environment variable, which client-go reads once.
func choose(watchList bool) {
	check(os.Setenv("KUBE_FEATURE_WatchListClient", strconv.FormatBool(watchList)))
	if features.FeatureGates().Enabled(features.WatchListClient) != watchList {
		check(errors.New("this client-go ignores KUBE_FEATURE_WatchListClient"))
	}
}

// prepared returns a factory's informer of all pods, and the function that starts it.
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
		check(fmt.Errorf("unknown mode %q", opts.mode))
	}

	client, err := kubernetes.NewForConfig(config)
	check(err)
	factory := informers.NewSharedInformerFactory(client, 0)
	return factory.Core().V1().Pods().Informer(), factory.Start
}
