// Package bttest as the Go client's own tests see it, without a server in memory: every call is made to the server at
// PEER_ADDR. `cargo xtask suites` puts this file in the place of the in-memory server, in a copy of the client's module, so that
// the tests of that server judge ours as they are.
//
// A test makes servers as it likes and calls its tables alike in all of them. So each server here is an instance of the peer that
// nobody else uses, and the names in requests and answers are translated.
package bttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	btapb "cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	btpb "cloud.google.com/go/bigtable/apiv2/bigtablepb"
	longrunning "cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	rowCalls   = "/google.bigtable.v2.Bigtable/"
	tableCalls = "/google.bigtable.admin.v2.BigtableTableAdmin/"
	// The emulator takes and sends messages of up to this size.
	messageMax = 256 << 20
)

var errInMemory = errors.New("only a server in memory has this")

// Server is what the client's integration tests start, and then dial by its address.
type Server struct{ Addr string }

func NewServer(string, ...grpc.ServerOption) (*Server, error) {
	address, err := peerAddress()
	return &Server{Addr: address}, err
}

func NewServerWithListener(net.Listener, ...grpc.ServerOption) (*Server, error) {
	return nil, errInMemory
}

func (s *Server) Close() {}

func peerAddress() (string, error) {
	if address := os.Getenv("PEER_ADDR"); address != "" {
		return address, nil
	}
	return "", errors.New("PEER_ADDR does not say where the server is")
}

// peer is the one connection of this process.
var peer = sync.OnceValue(func() *grpc.ClientConn {
	address, err := peerAddress()
	if err != nil {
		panic(err)
	}
	sizes := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageMax), grpc.MaxCallSendMsgSize(messageMax))
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), sizes)
	if err != nil {
		panic(err)
	}
	return conn
})

// server is what the tests call without a wire.
type server struct {
	tables    map[string]*table
	instances map[string]*btapb.Instance

	mu sync.Mutex
	// The number of this server among all of the process, once it has been called.
	number int64
	// Instances by their names in the test and on the peer.
	onPeer, inTest map[string]string
}

var servers atomic.Int64

// toPeer translates the name of an instance, or of a table in one.
func (s *server) toPeer(name string) string {
	instance, rest := splitAtTable(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number == 0 {
		s.number = servers.Add(1)
		s.onPeer, s.inTest = map[string]string{}, map[string]string{}
	}
	there, known := s.onPeer[instance]
	if !known {
		there = fmt.Sprintf("projects/suite/instances/i%d-%d-%d", os.Getpid(), s.number, len(s.onPeer))
		s.onPeer[instance], s.inTest[there] = there, instance
	}
	return there + rest
}

// toTest translates back what is one of ours.
func (s *server) toTest(name string) string {
	instance, rest := splitAtTable(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if here, known := s.inTest[instance]; known {
		return here + rest
	}
	return name
}

func splitAtTable(name string) (instance, rest string) {
	if at := strings.Index(name, "/tables/"); at >= 0 {
		return name[:at], name[at:]
	}
	return name, ""
}

// translated is a copy of a message in which each name is another.
func translated[M proto.Message](message M, name func(string) string) M {
	copied := proto.Clone(message).(M)
	err := protorange.Range(copied.ProtoReflect(), func(values protopath.Values) error {
		last := values.Index(-1)
		if last.Step.Kind() != protopath.FieldAccessStep {
			return nil
		}
		text, isText := last.Value.Interface().(string)
		field := last.Step.FieldDescriptor()
		switch field.Name() {
		case "parent", "name", "table_name":
			if isText && text != "" {
				values.Index(-2).Value.Message().Set(field, protoreflect.ValueOfString(name(text)))
			}
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return copied
}

// failure is an error of the peer with the names that the test knows.
func (s *server) failure(err error) error {
	told, isStatus := status.FromError(err)
	if err == nil || !isStatus {
		return err
	}
	words := told.Proto()
	s.mu.Lock()
	defer s.mu.Unlock()
	for there, here := range s.inTest {
		words.Message = strings.ReplaceAll(words.Message, there, here)
	}
	return status.ErrorProto(words)
}

// outgoing sends on what a test gave to the server with its call.
func outgoing(ctx context.Context) context.Context {
	if sent, has := metadata.FromIncomingContext(ctx); has {
		return metadata.NewOutgoingContext(ctx, sent)
	}
	return ctx
}

// contextOf is the context of a stream; those that tests make may have none, and fail when asked for it.
func contextOf(stream interface{ Context() context.Context }) (ctx context.Context) {
	ctx = context.Background()
	defer func() { _ = recover() }()
	return outgoing(stream.Context())
}

// unary makes a call with one answer. It goes on when the test's time is over, as a call of a function does.
func unary[R any, P interface {
	*R
	proto.Message
}, Q proto.Message](s *server, ctx context.Context, method string, request Q) (P, error) {
	response := P(new(R))
	ctx = context.WithoutCancel(outgoing(ctx))
	if err := peer().Invoke(ctx, method, translated(request, s.toPeer), response); err != nil {
		return nil, s.failure(err)
	}
	return translated(response, s.toTest), nil
}

// passOn gives each message of an answer to a test.
func passOn[M any](s *server, receive func() (*M, error), send func(*M) error) error {
	for {
		message, err := receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return s.failure(err)
		}
		if err := send(message); err != nil {
			return err
		}
	}
}

func (s *server) CreateTable(ctx context.Context, req *btapb.CreateTableRequest) (*btapb.Table, error) {
	made, err := unary[btapb.Table](s, ctx, tableCalls+"CreateTable", req)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tables == nil {
			s.tables = map[string]*table{}
		}
		name := req.Parent + "/tables/" + req.TableId
		s.tables[name] = &table{rows: rows{s, name}}
	}
	return made, err
}

func (s *server) ListTables(ctx context.Context, req *btapb.ListTablesRequest) (*btapb.ListTablesResponse, error) {
	return unary[btapb.ListTablesResponse](s, ctx, tableCalls+"ListTables", req)
}

func (s *server) GetTable(ctx context.Context, req *btapb.GetTableRequest) (*btapb.Table, error) {
	return unary[btapb.Table](s, ctx, tableCalls+"GetTable", req)
}

func (s *server) DeleteTable(ctx context.Context, req *btapb.DeleteTableRequest) (*emptypb.Empty, error) {
	return unary[emptypb.Empty](s, ctx, tableCalls+"DeleteTable", req)
}

func (s *server) UpdateTable(ctx context.Context, req *btapb.UpdateTableRequest) (*longrunning.Operation, error) {
	return unary[longrunning.Operation](s, ctx, tableCalls+"UpdateTable", req)
}

func (s *server) ModifyColumnFamilies(ctx context.Context, req *btapb.ModifyColumnFamiliesRequest) (*btapb.Table, error) {
	return unary[btapb.Table](s, ctx, tableCalls+"ModifyColumnFamilies", req)
}

func (s *server) DropRowRange(ctx context.Context, req *btapb.DropRowRangeRequest) (*emptypb.Empty, error) {
	return unary[emptypb.Empty](s, ctx, tableCalls+"DropRowRange", req)
}

func (s *server) CreateAuthorizedView(ctx context.Context, req *btapb.CreateAuthorizedViewRequest) (*longrunning.Operation, error) {
	return unary[longrunning.Operation](s, ctx, tableCalls+"CreateAuthorizedView", req)
}

func (s *server) GetAuthorizedView(ctx context.Context, req *btapb.GetAuthorizedViewRequest) (*btapb.AuthorizedView, error) {
	return unary[btapb.AuthorizedView](s, ctx, tableCalls+"GetAuthorizedView", req)
}

func (s *server) ListAuthorizedViews(ctx context.Context, req *btapb.ListAuthorizedViewsRequest) (*btapb.ListAuthorizedViewsResponse, error) {
	return unary[btapb.ListAuthorizedViewsResponse](s, ctx, tableCalls+"ListAuthorizedViews", req)
}

func (s *server) UpdateAuthorizedView(ctx context.Context, req *btapb.UpdateAuthorizedViewRequest) (*longrunning.Operation, error) {
	return unary[longrunning.Operation](s, ctx, tableCalls+"UpdateAuthorizedView", req)
}

func (s *server) DeleteAuthorizedView(ctx context.Context, req *btapb.DeleteAuthorizedViewRequest) (*emptypb.Empty, error) {
	return unary[emptypb.Empty](s, ctx, tableCalls+"DeleteAuthorizedView", req)
}

func (s *server) MutateRow(ctx context.Context, req *btpb.MutateRowRequest) (*btpb.MutateRowResponse, error) {
	return unary[btpb.MutateRowResponse](s, ctx, rowCalls+"MutateRow", req)
}

func (s *server) CheckAndMutateRow(ctx context.Context, req *btpb.CheckAndMutateRowRequest) (*btpb.CheckAndMutateRowResponse, error) {
	return unary[btpb.CheckAndMutateRowResponse](s, ctx, rowCalls+"CheckAndMutateRow", req)
}

func (s *server) ReadModifyWriteRow(ctx context.Context, req *btpb.ReadModifyWriteRowRequest) (*btpb.ReadModifyWriteRowResponse, error) {
	return unary[btpb.ReadModifyWriteRowResponse](s, ctx, rowCalls+"ReadModifyWriteRow", req)
}

func (s *server) PingAndWarm(ctx context.Context, req *btpb.PingAndWarmRequest) (*btpb.PingAndWarmResponse, error) {
	return unary[btpb.PingAndWarmResponse](s, ctx, rowCalls+"PingAndWarm", req)
}

func (s *server) readRows(ctx context.Context, req *btpb.ReadRowsRequest, send func(*btpb.ReadRowsResponse) error) error {
	answer, err := btpb.NewBigtableClient(peer()).ReadRows(ctx, translated(req, s.toPeer))
	if err != nil {
		return s.failure(err)
	}
	return passOn(s, answer.Recv, send)
}

func (s *server) ReadRows(req *btpb.ReadRowsRequest, stream btpb.Bigtable_ReadRowsServer) error {
	return s.readRows(contextOf(stream), req, stream.Send)
}

func (s *server) MutateRows(req *btpb.MutateRowsRequest, stream btpb.Bigtable_MutateRowsServer) error {
	answer, err := btpb.NewBigtableClient(peer()).MutateRows(contextOf(stream), translated(req, s.toPeer))
	if err != nil {
		return s.failure(err)
	}
	return passOn(s, answer.Recv, stream.Send)
}

func (s *server) SampleRowKeys(req *btpb.SampleRowKeysRequest, stream btpb.Bigtable_SampleRowKeysServer) error {
	answer, err := btpb.NewBigtableClient(peer()).SampleRowKeys(contextOf(stream), translated(req, s.toPeer))
	if err != nil {
		return s.failure(err)
	}
	return passOn(s, answer.Recv, stream.Send)
}

// table is what tests look at within a table.
type table struct {
	rows        rows
	granularity btapb.Table_TimestampGranularity
}

// gc has nothing to do: the peer hides at once what its rules have collected.
func (t *table) gc() {}

func (t *table) timestampUnit() int64 {
	if t.granularity == btapb.Table_MICROS {
		return 1
	}
	return 1000
}

func (t *table) validTimestamp(at int64) bool { return at >= 0 && at%t.timestampUnit() == 0 }

func (t *table) newTimestamp() int64 {
	now := time.Now().UnixMicro()
	return now - now%t.timestampUnit()
}

// rows are those of a table on the peer, which tests count.
type rows struct {
	s     *server
	table string
}

func (r rows) Len() int {
	count := 0
	err := r.s.readRows(context.Background(), &btpb.ReadRowsRequest{TableName: r.table}, func(m *btpb.ReadRowsResponse) error {
		for _, chunk := range m.Chunks {
			if chunk.GetCommitRow() {
				count++
			}
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return count
}

// row, family and cell are what tests of filters make.
type row struct {
	key      string
	families map[string]*family
}

type family struct {
	name     string
	colNames []string
	cells    map[string][]cell
}

type cell struct {
	ts    int64
	value []byte
}

// copy: here no filter changes a row.
func (r *row) copy() *row { return r }

// filterRow tells whether a filter lets anything of the row through: in a table of its own, which has that row alone.
func filterRow(filter *btpb.RowFilter, r *row) (bool, error) {
	ctx, s := context.Background(), &server{}
	const parent, name = "filtered", "filtered/tables/t"
	families := map[string]*btapb.ColumnFamily{}
	write := &btpb.MutateRowRequest{TableName: name, RowKey: []byte(r.key)}
	for _, family := range r.families {
		families[family.name] = &btapb.ColumnFamily{}
		for qualifier, cells := range family.cells {
			for _, cell := range cells {
				set := &btpb.Mutation_SetCell{FamilyName: family.name, ColumnQualifier: []byte(qualifier)}
				set.TimestampMicros, set.Value = cell.ts, cell.value
				one := &btpb.Mutation{Mutation: &btpb.Mutation_SetCell_{SetCell: set}}
				write.Mutations = append(write.Mutations, one)
			}
		}
	}
	made := &btapb.CreateTableRequest{Parent: parent, TableId: "t", Table: &btapb.Table{ColumnFamilies: families}}
	if _, err := s.CreateTable(ctx, made); err != nil {
		return false, err
	}
	defer s.DeleteTable(ctx, &btapb.DeleteTableRequest{Name: name})
	if _, err := s.MutateRow(ctx, write); err != nil {
		return false, err
	}
	passes := false
	err := s.readRows(ctx, &btpb.ReadRowsRequest{TableName: name, Filter: filter}, func(m *btpb.ReadRowsResponse) error {
		passes = passes || len(m.Chunks) > 0
		return nil
	})
	return passes, err
}

// What follows has no call on the wire. Tests that need it are excluded by name; without it none would compile.

var randFloat = func() float64 { return 0 }

func messageOnInvalidKeyRanges(_, _, _, _ []byte) string { return errInMemory.Error() }

func (s *server) GetPartitionsByTableName(string) []*btpb.RowRange { return nil }

func (s *server) DeleteInstance(context.Context, *btapb.DeleteInstanceRequest) (*emptypb.Empty, error) {
	return nil, errInMemory
}
