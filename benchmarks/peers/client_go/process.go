package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	metaruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// report writes a line of the protocol.
func report(parts ...map[string]any) {
	line := map[string]any{}
	for _, part := range parts {
		maps.Copy(line, part)
	}
	check(json.NewEncoder(os.Stdout).Encode(line))
}

// check exits with a message if there is an error.
func check(err error) {
	if err == nil {
		return
	}
	line, _ := json.Marshal(map[string]string{"at": "error", "message": err.Error()})
	fmt.Println(string(line))
	os.Exit(1)
}

// failingUntil returns a watch error handler that exits if the server refuses the first list.
// The informer recovers from later errors, and from an unreachable server at any time.
func failingUntil(synced <-chan struct{}) cache.WatchErrorHandlerWithContext {
	return func(ctx context.Context, reflector *cache.Reflector, err error) {
		select {
		case <-synced:
			cache.DefaultWatchErrorHandler(ctx, reflector, err)
		default:
			check(err)
		}
	}
}

func seconds(since time.Time) float64 {
	return time.Since(since).Seconds()
}

// command sends a command to the canned server.
func command(url string) {
	response, err := http.Get(url)
	check(err)
	_, err = io.Copy(io.Discard, response.Body)
	check(err)
	check(response.Body.Close())
}

// settled returns the memory of this process in KiB, without garbage: the resident memory,
// and the part that Go objects take.
func settled() map[string]any {
	runtime.GC()
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return map[string]any{"resident": status("VmRSS"), "heap": stats.HeapAlloc / 1024}
}

// forgetPeak resets the peak of resident memory to the current value.
func forgetPeak() {
	check(os.WriteFile("/proc/self/clear_refs", []byte("5"), 0))
}

// peak returns the maximum of resident memory since then, in KiB.
func peak() int {
	return status("VmHWM")
}

func status(name string) int {
	text, err := os.ReadFile("/proc/self/status")
	check(err)
	found := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		check(errors.New("/proc/self/status has no " + name))
	}
	value, err := strconv.Atoi(string(found[1]))
	check(err)
	return value
}

// onlyProtobuf exits if the server responds with JSON nevertheless, because the figures would
// have the wrong name.
func onlyProtobuf(inner http.RoundTripper) http.RoundTripper {
	return trip(func(request *http.Request) (*http.Response, error) {
		response, err := inner.RoundTrip(request)
		if err == nil && response.StatusCode == http.StatusOK {
			got := response.Header.Get("Content-Type")
			if !strings.HasPrefix(got, metaruntime.ContentTypeProtobuf) {
				check(fmt.Errorf("server responded with %s instead of protobuf", got))
			}
		}
		return response, err
	})
}

type trip func(*http.Request) (*http.Response, error)

func (t trip) RoundTrip(request *http.Request) (*http.Response, error) {
	return t(request)
}
