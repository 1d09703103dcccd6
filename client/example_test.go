package client_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/syncnode/syncnode/client"
)

// invoices is a resource that refuses an older epoch.
type invoices struct{ epoch uint64 }

func (i *invoices) send(_ context.Context, epoch uint64) error {
	if epoch < i.epoch {
		return errors.New("an older epoch")
	}
	i.epoch = epoch
	return nil
}

func ExampleClient_Run() {
	c, err := client.New(client.Config{URL: "unix:/var/lib/syncnode/node.sock"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	var resource invoices
	_, err = c.Run(context.Background(), "invoices", "2026-11", func(ctx context.Context, p *client.Permit) error {
		return resource.send(ctx, p.Epoch)
	})
	var failed *client.Error
	switch {
	case err == nil:
		fmt.Println("sent, now or before")
	case errors.As(err, &failed) && failed.Executed == client.No:
		fmt.Println("not sent:", failed.Name)
	default:
		fmt.Println("it may have been sent:", err)
	}
}
