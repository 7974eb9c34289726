// Prints how kinds of Kubernetes look in its binary encoding, as JSON: the number, the name
// and the type of each field, from the tags of the Go types. What the answer is for is said
// where it is read, in aioinformer_apiserver/protobuf.
package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Types that are written in JSON in a way of their own; the reader knows how.
var special = map[string]bool{
	"Time": true, "MicroTime": true, "Quantity": true, "IntOrString": true,
	"RawExtension": true, "FieldsV1": true,
}

type table struct {
	kinds    map[string]string
	messages map[string]string
}

// The arguments are the kinds to print, each as "apps/v1/Deployment" or "v1/Pod".
func main() {
	found := table{map[string]string{}, map[string]string{}}
	for _, asked := range os.Args[1:] {
		version, kind := path.Split(asked)
		group, err := schema.ParseGroupVersion(strings.TrimSuffix(version, "/"))
		fail(err)
		object, err := scheme.Scheme.New(group.WithKind(kind))
		fail(err)
		found.kinds[asked] = found.add(reflect.TypeOf(object).Elem())
	}

	fmt.Printf("{\"kinds\":%s,\"messages\":%s}\n", lines(found.kinds), lines(found.messages))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// lines writes a JSON object with a line for each entry.
func lines(entries map[string]string) string {
	var written []string
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		written = append(written, fmt.Sprintf("%q:%q", name, entries[name]))
	}

	return "{\n" + strings.Join(written, ",\n") + "\n}"
}

// add describes a struct, and those within it; it returns the struct's name.
func (t table) add(of reflect.Type) string {
	folders := strings.Split(of.PkgPath(), "/")
	name := strings.Join(folders[max(0, len(folders)-2):], "/") + "." + of.Name()
	if _, known := t.messages[name]; known {
		return name
	}

	t.messages[name] = "" // ends the recursion where a type contains itself
	var fields []string
	for i := range of.NumField() {
		field := of.Field(i)
		tags := strings.Split(field.Tag.Get("protobuf"), ",")
		if len(tags) < 2 {
			continue // the type of an object, for which there is an envelope
		}

		json := strings.Split(field.Tag.Get("json"), ",")
		words := []string{tags[1], cmp.Or(json[0], "-"), t.kind(field.Type)}
		words = append(words, flags(field, json[1:])...)
		fields = append(fields, strings.Join(words, " "))
	}

	t.messages[name] = strings.Join(fields, ", ")
	return name
}

// kind says how a type is encoded: a word, or the name of a message.
func (t table) kind(of reflect.Type) string {
	switch {
	case special[of.Name()]:
		return of.Name()
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Uint8:
		return "bytes"
	case of.Kind() == reflect.Slice && of.Name() != "":
		return "items:" + t.kind(of.Elem())
	}

	switch of.Kind() {
	case reflect.Pointer:
		return t.kind(of.Elem())
	case reflect.Slice:
		return "list:" + t.kind(of.Elem())
	case reflect.Map:
		return "map:" + t.kind(of.Elem())
	case reflect.Struct:
		return t.add(of)
	default:
		return of.Kind().String()
	}
}

// flags tells what is left out of JSON: "o"(mitted) if empty, "z"(ero) structs; "i"(nline)
// are fields that stand in their struct's place. Behind a pointer there is no empty value.
func flags(field reflect.StructField, options []string) []string {
	var found []string
	if slices.Contains(options, "inline") {
		found = append(found, "i")
	}

	if field.Type.Kind() != reflect.Pointer {
		for option, flag := range map[string]string{"omitempty": "o", "omitzero": "z"} {
			if slices.Contains(options, option) {
				found = append(found, flag)
			}
		}
	}

	slices.Sort(found)
	return found
}
