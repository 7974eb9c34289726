package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/client-go/kubernetes/scheme"
)

// encode converts JSON to protobuf by the encoders of kube-apiserver, for the canned server.
// Each line of the input is a list of pods or an event of a watch. For each line, it writes the
// number of writes to the response, then the length and the bytes of each.
func encode(in io.Reader, out io.Writer) {
	buffered := bufio.NewWriterSize(out, 1<<20)
	codecs := serializer.NewCodecFactory(
		scheme.Scheme, serializer.WithStreamingCollectionEncodingToProtobuf())
	media, found := runtime.SerializerInfoForMediaType(
		codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !found {
		check(errors.New("this client-go has no protobuf"))
	}

	version := corev1.SchemeGroupVersion
	whole := codecs.EncoderForVersion(media.Serializer, version)
	events := codecs.EncoderForVersion(media.StreamSerializer.Serializer, version)
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		check(err)

		writes := &recorded{}
		var event struct {
			Type   string
			Object json.RawMessage
		}
		check(json.Unmarshal(line, &event))
		if event.Type == "" {
			check(whole.Encode(decoded(codecs, line), writes))
		} else {
			var object bytes.Buffer
			check(whole.Encode(decoded(codecs, event.Object), &object))
			frames := media.StreamSerializer.NewFrameWriter(writes)
			check(streaming.NewEncoder(frames, events).Encode(&metav1.WatchEvent{
				Type: event.Type, Object: runtime.RawExtension{Raw: object.Bytes()},
			}))
		}
		check(writes.save(buffered))
	}
	check(buffered.Flush())
}

func decoded(codecs serializer.CodecFactory, text []byte) runtime.Object {
	object, _, err := codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		check(fmt.Errorf("%.80s: %w", text, err))
	}
	return object
}

// recorded keeps what an encoder writes, call by call.
type recorded struct {
	writes [][]byte
}

func (r *recorded) Write(data []byte) (int, error) {
	r.writes = append(r.writes, bytes.Clone(data))
	return len(data), nil
}

func (r *recorded) save(out io.Writer) error {
	size := func(value int) error {
		return binary.Write(out, binary.BigEndian, uint32(value))
	}
	if err := size(len(r.writes)); err != nil {
		return err
	}
	for _, data := range r.writes {
		if err := size(len(data)); err != nil {
			return err
		}
		if _, err := out.Write(data); err != nil {
			return err
		}
	}
	return nil
}
