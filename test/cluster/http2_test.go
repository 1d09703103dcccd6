package cluster

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// headersFrame builds a client's header block for a call of path, cut into parts.
func headersFrame(enc *hpack.Encoder, buf *bytes.Buffer, path string, parts int) []byte {
	buf.Reset()
	_ = enc.WriteField(hpack.HeaderField{Name: ":path", Value: path})
	_ = enc.WriteField(hpack.HeaderField{Name: "grpc-timeout", Value: "1S"})
	block := bytes.Clone(buf.Bytes())
	var out []byte
	for i := range parts {
		n := len(block) / (parts - i)
		typ, flags := byte(frameContinuation), byte(0)
		if i == 0 {
			typ = frameHeaders
		}
		if i == parts-1 {
			flags = flagEndHeaders
		}
		out = append(out, rawFrame(typ, flags, 1, block[:n])...)
		block = block[n:]
	}
	return out
}

func rawFrame(typ, flags byte, stream uint32, payload []byte) []byte {
	head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), typ, flags}
	return append(binary.BigEndian.AppendUint32(head, stream), payload...)
}

func TestTheMethodIsReadFromEachHeaderBlockWhole(t *testing.T) {
	var buf bytes.Buffer
	enc := hpack.NewEncoder(&buf)
	var wire []byte
	// The second block of a path refers to the first one's table entry.
	for i, path := range []string{"/etcdserverpb.KV/Put", "/etcdserverpb.KV/Txn", "/etcdserverpb.KV/Put"} {
		wire = append(wire, headersFrame(enc, &buf, path, i+1)...)
		wire = append(wire, rawFrame(frameData, flagEndStream, 1, []byte("body"))...)
	}
	fr := &frameReader{r: bufio.NewReader(bytes.NewReader(wire)), http2: true}
	methods := newMethodReader()
	var got []string
	for {
		f, err := fr.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if method, ok := methods.read(f); ok {
			got = append(got, method)
		}
	}
	if len(got) != 3 || got[0] != "Put" || got[1] != "Txn" || got[2] != "Put" {
		t.Errorf("got %q", got)
	}
}

func TestPaddingAndPriorityAreNotPartOfAHeaderBlock(t *testing.T) {
	payload := append([]byte{2, 0, 0, 0, 0, 0}, "block\x00\x00"...)
	f := frame{raw: rawFrame(frameHeaders, flagPadded|flagPriority, 1, payload), typ: frameHeaders, flags: flagPadded | flagPriority}
	if got := string(f.fragment()); got != "block" {
		t.Errorf("got %q", got)
	}
}

func TestOnlyAWholePrefaceIsHTTP2(t *testing.T) {
	for text, want := range map[string]bool{preface: true, "PRI * HTTP/2.1": false, "GET / HTTP/1.1": false} {
		r := bufio.NewReader(bytes.NewReader([]byte(text + "rest")))
		got, err := sniffPreface(r)
		if got != want || err != nil {
			t.Errorf("%q: got %t, %v", text, got, err)
		}
		left, _ := io.ReadAll(r)
		if !want && string(left) != text+"rest" || want && string(left) != "rest" {
			t.Errorf("%q: left %q", text, left)
		}
	}
}

// Whatever the bytes, the frames put together again are the bytes.
func FuzzFramesAreForwardedAsTheyCame(f *testing.F) {
	var buf bytes.Buffer
	f.Add(headersFrame(hpack.NewEncoder(&buf), &buf, "/etcdserverpb.KV/Put", 2))
	f.Add(rawFrame(frameHeaders, flagPadded|flagPriority|flagEndHeaders, 3, []byte{9}))
	f.Add(rawFrame(frameReset, 0, 5, []byte{0, 0, 0, 8}))
	f.Fuzz(func(t *testing.T, wire []byte) {
		fr := &frameReader{r: bufio.NewReader(bytes.NewReader(wire)), http2: true}
		methods := newMethodReader()
		var again []byte
		for {
			fm, err := fr.next()
			if err != nil {
				break
			}
			methods.read(fm)
			_, _ = fm.message(), fm.ends()
			again = append(again, fm.raw...)
		}
		if !bytes.HasPrefix(wire, again) {
			t.Errorf("%x became %x", wire, again)
		}
	})
}
