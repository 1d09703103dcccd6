package cluster

import (
	"bufio"
	"encoding/binary"
	"io"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// The parts of HTTP/2 (RFC 9113, sections 4 and 6) that the client proxy looks at.
const (
	preface     = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frameHeader = 9 // length 24 bits, type 8, flags 8, stream 32

	frameData         = 0x0
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameContinuation = 0x9

	flagEndStream  = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// A frame is one HTTP/2 frame with its header or, of any other protocol, some bytes.
type frame struct {
	raw    []byte
	typ    byte
	flags  byte
	stream uint32 // 0 also for other protocols
}

// message says that f belongs to a request or a response rather than to the connection.
func (f frame) message() bool {
	return f.stream != 0 && (f.typ == frameData || f.typ == frameHeaders || f.typ == frameContinuation)
}

// ends says that its sender says no more on the stream.
func (f frame) ends() bool {
	switch f.typ {
	case frameReset:
		return f.stream != 0
	case frameData, frameHeaders:
		return f.stream != 0 && f.flags&flagEndStream != 0
	}
	return false
}

// fragment is the part of a header block in f.
func (f frame) fragment() []byte {
	b := f.raw[frameHeader:]
	if f.typ != frameHeaders {
		return b
	}
	var pad int
	if f.flags&flagPadded != 0 && len(b) > 0 {
		pad, b = int(b[0]), b[1:]
	}
	if f.flags&flagPriority != 0 && len(b) >= 5 {
		b = b[5:]
	}
	return b[:max(0, len(b)-pad)]
}

// A frameReader cuts one direction of a connection into frames.
type frameReader struct {
	r     *bufio.Reader
	http2 bool
}

// next returns the next frame. Its bytes belong to the caller.
func (fr *frameReader) next() (frame, error) {
	if !fr.http2 {
		buf := make([]byte, 4<<10)
		n, err := fr.r.Read(buf)
		return frame{raw: buf[:n], typ: 0xff}, err
	}
	var head [frameHeader]byte
	if _, err := io.ReadFull(fr.r, head[:]); err != nil {
		return frame{}, err
	}
	size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	raw := make([]byte, frameHeader+size)
	copy(raw, head[:])
	if _, err := io.ReadFull(fr.r, raw[frameHeader:]); err != nil {
		return frame{}, err
	}
	return frame{raw: raw, typ: head[3], flags: head[4], stream: binary.BigEndian.Uint32(head[5:]) &^ (1 << 31)}, nil
}

// sniffPreface reads a client's preface if there is one, and says whether there was.
func sniffPreface(r *bufio.Reader) (bool, error) {
	for n := 1; n <= len(preface); n++ {
		got, err := r.Peek(n)
		if err != nil {
			return false, err
		}
		if string(got) != preface[:n] {
			return false, nil
		}
	}
	_, err := r.Discard(len(preface))
	return true, err
}

// A methodReader finds the called method in a client's header blocks. It has to see all of them, for
// each depends on those before.
type methodReader struct {
	dec    *hpack.Decoder
	method string
}

func newMethodReader() *methodReader {
	m := &methodReader{}
	m.dec = hpack.NewDecoder(4096, func(h hpack.HeaderField) {
		if h.Name == ":path" {
			m.method = h.Value[strings.LastIndexByte(h.Value, '/')+1:]
		}
	})
	m.dec.SetAllowedMaxDynamicTableSize(1 << 20)
	return m
}

// read returns the method, such as "Txn", once f completes a header block.
func (m *methodReader) read(f frame) (string, bool) {
	if f.typ != frameHeaders && f.typ != frameContinuation {
		return "", false
	}
	if f.typ == frameHeaders {
		m.method = ""
	}
	_, _ = m.dec.Write(f.fragment())
	if f.flags&flagEndHeaders == 0 {
		return "", false
	}
	_ = m.dec.Close()
	return m.method, true
}

// streaming says whether a call of method is a stream that may never end.
func streaming(method string) bool {
	switch method {
	case "Watch", "LeaseKeepAlive", "Snapshot", "Observe":
		return true
	}
	return false
}
