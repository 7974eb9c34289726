package main

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// Versions from here on are times: nanoseconds since 1970.
const firstTime = 1_000_000_000_000_000_000

// handler counts its calls. The informer calls it from one goroutine. expect may be called
// from another one while there are no changes.
type handler struct {
	body      bool
	running   int // count of a handler that reads phases
	missing   atomic.Int64
	over      chan struct{}
	latencies []float64 // in milliseconds
}

// expect returns a channel that is closed after a number of further changes.
func (h *handler) expect(changes int) <-chan struct{} {
	h.over = make(chan struct{})
	h.latencies = make([]float64, 0, changes)
	h.missing.Store(int64(changes))
	return h.over
}

func (h *handler) OnAdd(obj any, initially bool) {
	h.look(obj)
	if !initially {
		h.count(obj)
	}
}

func (h *handler) OnUpdate(_, obj any) {
	h.look(obj)
	h.count(obj)
}

func (h *handler) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	h.look(obj)
	h.count(obj)
}

func (h *handler) look(obj any) {
	if h.body && phase(obj) == string(corev1.PodRunning) {
		h.running++
	}
}

func (h *handler) count(obj any) {
	left := h.missing.Add(-1)
	if left < 0 {
		return
	}
	version, err := strconv.ParseInt(metadata(obj).GetResourceVersion(), 10, 64)
	check(err)
	if version >= firstTime {
		took := time.Duration(time.Now().UnixNano() - version)
		h.latencies = append(h.latencies, took.Seconds()*1000)
	}
	if left == 0 {
		close(h.over)
	}
}

// nodes is the index function.
func nodes(obj any) ([]string, error) {
	return []string{node(obj)}, nil
}

func metadata(obj any) metav1.Object {
	found, err := meta.Accessor(obj)
	check(err)
	return found
}

func node(obj any) string {
	if pod, ok := obj.(*corev1.Pod); ok {
		return pod.Spec.NodeName
	}
	return nested(obj, "spec", "nodeName")
}

func phase(obj any) string {
	if pod, ok := obj.(*corev1.Pod); ok {
		return string(pod.Status.Phase)
	}
	return nested(obj, "status", "phase")
}

func nested(obj any, path ...string) string {
	found, _, err := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, path...)
	check(err)
	return found
}

// digest returns the digest of bench/digest.py for all objects of the informer.
func digest(objects []any) string {
	lines := make([]string, 0, len(objects))
	for _, obj := range objects {
		it := metadata(obj)
		lines = append(lines, strings.Join([]string{
			it.GetNamespace(), it.GetName(), string(it.GetUID()), it.GetResourceVersion(),
			node(obj), phase(obj),
		}, " ")+"\n")
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:])
}
