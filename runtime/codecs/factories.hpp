// One factory per codec kind, for registry.cpp.
#pragma once

#include <memory>

#include "plan/codec.hpp"
#include "runtime/codec.hpp"

namespace rackrail::runtime {

std::unique_ptr<Codec> make_plain_codec(const plan::Codec& descriptor);
std::unique_ptr<Codec> make_fp16_codec(const plan::Codec& descriptor);
std::unique_ptr<Codec> make_int8_block_codec(const plan::Codec& descriptor);
std::unique_ptr<Codec> make_top_k_codec(const plan::Codec& descriptor);

}  // namespace rackrail::runtime
