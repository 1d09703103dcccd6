package remote

import (
	"reflect"
	"testing"
	"time"

	"github.com/syncnode/syncnode/coord"
	"github.com/syncnode/syncnode/internal/wire"
)

// fill gives every field below v a value of its own.
func fill(v reflect.Value, n *int64) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(time.Unix(*n, 0).UTC().Format(time.RFC3339))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(*n)
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("x"), reflect.ValueOf(true))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(*n, 0).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	default:
		panic(v.Kind().String())
	}
}

func crosses[T, W any](t *testing.T, there func(T) W, back func(W) T, left func(*T)) {
	t.Helper()
	var v, got T
	n := int64(0)
	fill(reflect.ValueOf(&v).Elem(), &n)
	left(&v)
	var w W
	if err := wire.Decode(wire.Facts(there(v)), &w); err != nil {
		t.Fatal(err)
	}
	if got = back(w); !reflect.DeepEqual(got, v) {
		t.Errorf("%+v\ncomes back as\n%+v", v, got)
	}
}

func TestNoFieldOfTheContractIsLeftOut(t *testing.T) {
	sent := time.Unix(1_000_000, 0).UTC()
	crosses(t, func(l coord.Lease) lease { return leaseOf(l, l.Sent.Add(time.Hour)) }, func(l lease) coord.Lease { return l.lease(sent.Add(time.Hour)) }, func(l *coord.Lease) { l.Sent = sent })
	crosses(t, beginOf, begin.begin, func(b *coord.Begin) { b.Lease.Sent = time.Time{} })
	crosses(t, viewOf, view.view, func(v *coord.View) { v.Holder.Sent = time.Time{} })
	crosses(t, theftOf, theft.theft, func(*coord.Theft) {})
	crosses(t, func(o coord.Outcome) outcome { return outcome(o) }, func(o outcome) coord.Outcome { return coord.Outcome(o) }, func(*coord.Outcome) {})
	crosses(t, func(f coord.Filter) filter { return filter(f) }, func(f filter) coord.Filter { return coord.Filter(f) }, func(*coord.Filter) {})
	crosses(t, func(r coord.Resolution) resolution { return resolution(r) }, func(r resolution) coord.Resolution { return coord.Resolution(r) }, func(*coord.Resolution) {})
}
