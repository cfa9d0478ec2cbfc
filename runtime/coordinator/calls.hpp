// Calls whose message is read only once their token is known to be the job's.
//
// A service that protoc generates is handed each call together with its message, which by then has
// taken its memory, whoever sent it. The calls of a generic service begin with their metadata: who
// may not talk is answered by these alone, and of his message nothing is taken in but what HTTP/2
// allows on any stream before somebody reads it (64 KiB, as the server does not let it grow). What
// goes over the wire is the same.
//
// Included by server.cpp alone.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <utility>

namespace rackrail::runtime {

/// False where the bytes are not those of such a message. None are left in the buffer.
template <typename Message>
bool take_message(grpc::ByteBuffer& buffer, Message& message) {
  return grpc::SerializationTraits<Message>::Deserialize(&buffer, &message).ok();
}

template <typename Message>
grpc::ByteBuffer serialized(const Message& message) {
  grpc::ByteBuffer buffer;
  bool is_own = false;
  // Fails for more than 2 GiB alone, which nobody could receive.
  grpc::SerializationTraits<Message>::Serialize(message, &buffer, &is_own);
  return buffer;
}

/// One that ends before it began. Deletes itself, as all calls do.
class RefusedCall final : public grpc::ServerGenericBidiReactor {
 public:
  explicit RefusedCall(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

/// A message each way.
template <typename Request, typename Reply>
class UnaryCall final : public grpc::ServerGenericBidiReactor {
 public:
  /// Called on a thread of gRPC once the request is there; calls finish(), then or later.
  using Begin = std::function<void(UnaryCall&)>;

  explicit UnaryCall(Begin begin) : begin_(std::move(begin)) { StartRead(&buffer_); }

  // Until finish():
  const Request& request() const { return request_; }
  Reply& reply() { return reply_; }

  /// Once, from any thread. With the reply, if the status is good.
  void finish(const grpc::Status& status) {
    if (!status.ok()) {
      Finish(status);
      return;
    }
    buffer_ = serialized(reply_);
    StartWriteAndFinish(&buffer_, grpc::WriteOptions(), status);
  }

  void OnReadDone(bool ok) override {
    if (!ok || !take_message(buffer_, request_)) {
      finish({grpc::StatusCode::INVALID_ARGUMENT, "no such message"});
      return;
    }
    begin_(*this);
  }
  void OnDone() override { delete this; }

 private:
  const Begin begin_;
  grpc::ByteBuffer buffer_;
  Request request_;
  Reply reply_;
};

}  // namespace rackrail::runtime
