// Blocks of 16 quantised rows, interleaved: the packed layout of every quantised format.
//
// A panel is a sequence of blocks of columns, each 16 times as large as a row's. A block begins with its scales, 16
// rows of f16 (then 16 minima: q8, q4, q4_k), then
//   q4_k  per 32 columns 24 bytes: byte r < 16 has the six-bit scale of row r and the low two bits of its minimum, byte
//         16 + i the high four bits of the minima of rows i (low) and i + 8;
//   q6_k  per 16 columns 16 scales of 8 bits;
// but mxfp4 with 16 rows of a byte;
// then codes in lines of 64 bytes, four to a row. Bits n of the two halves of a row's 32 are of two neighbouring
// columns, so that shifting and masking leaves pairs of 16-bit numbers:
//   8 bits  4 columns a line: code of column 2n + c at bit 16c + 8n;
//   4 bits  8 columns a line: code of column 2n + c at bit 16c + 4n;
//   6 bits  16 columns in three lines: low four bits of 8 columns, of the next 8, and of all 16 the high two bits, that
//   of
//           column 2n + c at bit 16c + 2n.
// Panels follow each other, so that rows [a, b), both multiples of 16, are one range of bytes.
#pragma once
#include "formats/blocks.h"

namespace helm {

// Row `row` of a block of a panel; columns: a multiple of 32. Codes are merged into what is there: zeros at first.
void put_block(Format format, const CodeBlock& block, size_t columns, size_t row, uint8_t* panel_block);
CodeBlock take_block(Format format, const uint8_t* panel_block, size_t columns, size_t row);

}  // namespace helm
