/-
Certified test vectors of attention and positional encodings, as checks of TorchLean's definitions
over `Float`. `lean_checks.py` of attnspec writes this file. The numbers are dedicated to the public
domain (CC0 1.0); the rest has the MIT licence.
-/
import NN.Spec.Layers.Attention
import NN.Spec.Layers.PositionalEncoding

open Spec TorchLean

namespace CertifiedVectors

/-- The matrix with these entries, row by row. An entry is the bits of a number, which are exact. -/
def numbers (rows columns : Nat) (bits : Array UInt64) : Tensor Float [rows, columns] :=
  Tensor.dim fun i => Tensor.dim fun j =>
    Tensor.scalar (Float.ofBits bits[i.val * columns + j.val]!)

/-- The mask with these entries, row by row. True means that the query sees the key. -/
def booleans (rows columns : Nat) (entries : Array Bool) : Tensor Bool [rows, columns] :=
  Tensor.dim fun i => Tensor.dim fun j => Tensor.scalar entries[i.val * columns + j.val]!

/-- Print the largest error ÷ error limit of a result, or throw at the first entry that is outside.

The exact value of an entry is between `lower` and `upper`. Correct code is outside by its limit at
most. -/
def check {rows columns : Nat} (name : String) (out : Tensor Float [rows, columns])
    (lower upper limits : Array UInt64) : IO Unit := do
  let mut largest : Float := 0
  for i in List.finRange rows do
    for j in List.finRange columns do
      let index := i.val * columns + j.val
      let entry := Tensor.getScalar (Tensor.unstack out i) j
      let low := Float.ofBits lower[index]!
      let high := Float.ofBits upper[index]!
      let limit := Float.ofBits limits[index]!
      let distance := max (low - entry) (entry - high)
      unless low - limit ≤ entry ∧ entry ≤ high + limit do
        throw <| IO.userError <| s!"fail {name}[{i.val}, {j.val}] = {entry}: " ++
          s!"the distance from [{low}, {high}] is {distance}, but should be at most {limit}"
      if distance > 0 then
        largest := max largest (distance / limit)
  IO.println s!"pass {name}: the largest error is {largest} of its limit"

-- Scores of every size that the formats have.
#eval show IO Unit from do
  let scores := numbers 2 9 #[0xc0f0231d01a75e46, 0x40ef4ac2c446902c, 0x40a0896450dab9c0,
    0xc0c125ee1c2615c0, 0xc0f3effa0375f61e, 0xc0ffef59348e4a48, 0xc0f0a2094387dacc,
    0xc0f5d654754215f6, 0xc0eeb69fd8f3623c, 0x40f5a1c841d650c6, 0xc0f70f9eb5da7d9e,
    0xc0bce975c597bd40, 0x40fd4421bdaf3256, 0xc0e66a4f7ade4ad8, 0xc0e65bacbe02f930,
    0x40b932afb0499d00, 0xc0fe298722d8dd8a, 0x40e54972dbc98050]
  let mask := booleans 2 9 #[true, false, false, false, false, false, false, false, false, true,
    true, false, false, false, false, false, false, false]
  let out := Spec.hardMaskedSoftmaxSpec scores mask
  check "hard_masked_softmax/float64/000 weights" out
    #[0x3ff0000000000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3feffffffffffffe,
    0x8000000000000002, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0]
    #[0x3ff0000000000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3ff0000000000002, 0x2, 0x0, 0x0,
    0x0, 0x0, 0x0, 0x0, 0x0]
    #[0x3e12400000000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3e18800000000000,
    0x91600000000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0]

-- Masks with fully masked rows.
#eval show IO Unit from do
  let scores := numbers 3 3 #[0xbfd84c521574b703, 0x3ff22c1941ffec54, 0x3fd40539ac8b0c02,
    0xbff9eb6252450f63, 0xbfd48eebf44687fc, 0x3feb8367b3d5aa77, 0xbff63d486fbfc676,
    0xbfc941507d3ad3be, 0xbff01a614c0fdd5b]
  let mask := booleans 3 3 #[false, false, false, true, true, false, false, false, false]
  let out := Spec.hardMaskedSoftmaxSpec scores mask
  check "hard_masked_softmax/float64/001 weights" out
    #[0x0, 0x0, 0x0, 0x3fcb70b0d5086879, 0x3fe923d3cabde5df, 0x0, 0x0, 0x0, 0x0]
    #[0x0, 0x0, 0x0, 0x3fcb70b0d508687d, 0x3fe923d3cabde5e3, 0x0, 0x0, 0x0, 0x0]
    #[0x0, 0x0, 0x0, 0x3cfe000000000000, 0x3d19c00000000000, 0x0, 0x0, 0x0, 0x0]

-- One visible key for each query, and scores of every size that the formats have.
#eval show IO Unit from do
  let scores := numbers 1 1 #[0x0]
  let mask := booleans 1 1 #[true]
  let out := Spec.hardMaskedSoftmaxSpec scores mask
  check "hard_masked_softmax/float64/004 weights" out
    #[0x3ff0000000000000]
    #[0x3ff0000000000000]
    #[0x3d1b600000000000]

-- Masks with axes of size 1, or with fewer axes.
#eval show IO Unit from do
  let q := numbers 6 7 #[0xbff2000000000000, 0xc011800000000000, 0xbfc0000000000000,
    0x400d800000000000, 0xc017400000000000, 0x3fd0000000000000, 0xc018400000000000,
    0xc012c00000000000, 0x4016800000000000, 0xbff7000000000000, 0x401d800000000000,
    0x3fff000000000000, 0x4011000000000000, 0xc01ec00000000000, 0xbffa000000000000,
    0x4019800000000000, 0xbff3000000000000, 0x4019000000000000, 0x4011400000000000,
    0xbfc0000000000000, 0xc01a000000000000, 0xc011400000000000, 0xbfdc000000000000,
    0xbff1000000000000, 0x4009800000000000, 0xbfc0000000000000, 0xbfe2000000000000,
    0x4017400000000000, 0xc017000000000000, 0xc012c00000000000, 0xc010400000000000,
    0x401e000000000000, 0xc01a800000000000, 0xc000800000000000, 0x401f400000000000,
    0x3ff9000000000000, 0x4010400000000000, 0xc00a000000000000, 0x3ff5000000000000,
    0xc01b400000000000, 0x3fb0000000000000, 0x3ff3000000000000]
  let k := numbers 6 7 #[0x401fc00000000000, 0xc013000000000000, 0xbff3000000000000,
    0xc01d000000000000, 0xbfd8000000000000, 0x4004800000000000, 0x3ffc000000000000,
    0xc01f000000000000, 0xc01a000000000000, 0xc010400000000000, 0x3fe0000000000000,
    0x4011800000000000, 0xc01fc00000000000, 0xc00b800000000000, 0x4011800000000000,
    0xbffc000000000000, 0x4018400000000000, 0x4017800000000000, 0x400a000000000000,
    0xc01e800000000000, 0x401c400000000000, 0xc015000000000000, 0x4013c00000000000,
    0xc01b800000000000, 0xbff3000000000000, 0x4001000000000000, 0x3fd8000000000000,
    0x400a800000000000, 0x4016400000000000, 0x3ffa000000000000, 0xc00a000000000000,
    0xc01f400000000000, 0x4006800000000000, 0xc01e000000000000, 0xc004000000000000,
    0x4008000000000000, 0xc01ec00000000000, 0x401e400000000000, 0xc015000000000000,
    0xc011800000000000, 0x4011400000000000, 0x3fea000000000000]
  let v := numbers 6 7 #[0x3fc5000000000000, 0x3fe1800000000000, 0x0, 0x0, 0x0, 0x0, 0x0,
    0xbfd0800000000000, 0xbfe6000000000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3fa0000000000000,
    0xbfeec00000000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3fd5800000000000, 0x3fd7800000000000, 0x0, 0x0,
    0x0, 0x0, 0x0, 0xbfd2000000000000, 0xbfd8000000000000, 0x0, 0x0, 0x0, 0x0, 0x0,
    0x3fdf000000000000, 0xbfe0400000000000, 0x0, 0x0, 0x0, 0x0, 0x0]
  let mask := booleans 6 6 #[true, false, true, true, true, true, true, false, true, true, true,
    true, true, false, true, true, true, true, true, false, true, true, true, true, true, false,
    true, true, true, true, true, false, true, true, true, true]
  let out := Spec.scaledDotProductAttention
      ({ Q := q, K := k, V := v, mask := (some mask) } :
        Spec.AttentionContext Float 6 6 7 (by decide) (by decide))
  check "scaled_dot_product_attention/float64/001 out" out
    #[0x3fdeffffff89eb6d, 0xbfe03fffff3e2ec1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3fd57ffffffffffe,
    0x3fd77ffffffffffe, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3fd57fffba06a77b, 0x3fd77fff9e502963, 0x0, 0x0,
    0x0, 0x0, 0x0, 0x3fd1974b1e5a5276, 0x3fb9d7c86d1f6d72, 0x0, 0x0, 0x0, 0x0, 0x0,
    0x3fa09667ab3e7f6d, 0xbfee970637e94867, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3fd57fcc01280938,
    0x3fd77fd594be8a1d, 0x0, 0x0, 0x0, 0x0, 0x0]
    #[0x3fdeffffff89eb71, 0xbfe03fffff3e2ebd, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3fd5800000000002,
    0x3fd7800000000002, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3fd57fffba06a77f, 0x3fd77fff9e502967, 0x0, 0x0,
    0x0, 0x0, 0x0, 0x3fd1974b1e5a527a, 0x3fb9d7c86d1f6d76, 0x0, 0x0, 0x0, 0x0, 0x0,
    0x3fa09667ab3e7f71, 0xbfee970637e94863, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3fd57fcc0128093c,
    0x3fd77fd594be8a21, 0x0, 0x0, 0x0, 0x0, 0x0]
    #[0x3d47600000000000, 0x3d48800000000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3d41a00000000000,
    0x3d43400000000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3d3de00000000000, 0x3d40600000000000, 0x0, 0x0,
    0x0, 0x0, 0x0, 0x3d3f000000000000, 0x3d40e00000000000, 0x0, 0x0, 0x0, 0x0, 0x0,
    0x3d15800000000000, 0x3d63e00000000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x3d38400000000000,
    0x3d3a800000000000, 0x0, 0x0, 0x0, 0x0, 0x0]

-- Sizes of 1 to 3.
#eval show IO Unit from do
  let q := numbers 3 3 #[0x3fc9b2078180a864, 0xbfc4b2d99f580e7b, 0xbfa4b9d0587ff33d,
    0x3fc8214ede7d84b9, 0x3fc40d0b1ceeac69, 0x3fada08d1a6b67ff, 0x3fd110f99dde383f,
    0x3f9192c791c1a2e7, 0xbfd3b269e909a083]
  let k := numbers 3 3 #[0xbff2909fbb971662, 0xbfbd07993cf3dad0, 0x3ff30588ef689028,
    0x3fe0949b580e26dc, 0x3f80bf3dba5c7059, 0x3ff6b670ca87b3a1, 0xbfbb82b6704bbe01,
    0x3fe9463edea2cb10, 0x3f93a13414f8db58]
  let v := numbers 3 3 #[0x3fb71d9645c72028, 0x0, 0x0, 0x3f9a385f65045ded, 0x0, 0x0,
    0x3fa167bc8f6437b4, 0x0, 0x0]
  let mask := booleans 3 3 #[true, false, false, true, true, false, true, true, true]
  let grad_out := numbers 3 3 #[0x3ff453c6b0d160ab, 0x0, 0x0, 0x3fcec7cfbb6f5996, 0x0, 0x0,
    0xbfd31ac5a4a603c3, 0x0, 0x0]
  let out := Spec.scaledDotProductAttentionBackward
      ({ Q := q, K := k, V := v, mask := (some mask) } :
        Spec.AttentionContext Float 3 3 3 (by decide) (by decide)) grad_out
  check "scaled_dot_product_attention_vjp/float64/000 dq" out.1
    #[0x0, 0x0, 0x0, 0xbf6e8fde616bf57c, 0xbf31b5a05454d76a, 0xbf40cd5245bd8a8e, 0x3f67c8423e6de9a6,
    0x3f4dae467d478a28, 0xbf4726087d869862]
    #[0x0, 0x0, 0x0, 0xbf6e8fde616bf578, 0xbf31b5a05454d766, 0xbf40cd5245bd8a8a, 0x3f67c8423e6de9aa,
    0x3f4dae467d478a2c, 0xbf4726087d86985e]
    #[0x3cf6200000000000, 0x3cc1400000000000, 0x3cf6a00000000000, 0x3cb2c00000000000,
    0x3c83e00000000000, 0x3ccd800000000000, 0x3cafc00000000000, 0x3cad200000000000,
    0x3cc4a00000000000]
  check "scaled_dot_product_attention_vjp/float64/000 dk" out.2.1
    #[0xbf207d2e884daa4c, 0x3f34854bda502fca, 0x3f48d1abe634326e, 0xbf19d042e4954e7b,
    0xbf357772ffdae749, 0xbf40565a774dfbc0, 0x3f2d654ffa985184, 0x3eee44e4b156ef61,
    0xbf30f6a2ddcc6d66]
    #[0xbf207d2e884daa48, 0x3f34854bda502fce, 0x3f48d1abe6343272, 0xbf19d042e4954e77,
    0xbf357772ffdae745, 0xbf40565a774dfbbc, 0x3f2d654ffa985188, 0x3eee44e4b156ef65,
    0xbf30f6a2ddcc6d62]
    #[0x3cd1800000000000, 0x3ccaa00000000000, 0x3cb2e00000000000, 0x3ca3400000000000,
    0x3c92000000000000, 0x3c9bc00000000000, 0x3c94600000000000, 0x3c55000000000000,
    0x3c97800000000000]
  check "scaled_dot_product_attention_vjp/float64/000 dv" out.2.2
    #[0x3ff4c4d4a903be21, 0x0, 0x0, 0x3fa0684560f5100a, 0x0, 0x0, 0xbfbe20794f59bb62, 0x0, 0x0]
    #[0x3ff4c4d4a903be25, 0x0, 0x0, 0x3fa0684560f5100e, 0x0, 0x0, 0xbfbe20794f59bb5e, 0x0, 0x0]
    #[0x3d28600000000000, 0x0, 0x0, 0x3d00800000000000, 0x0, 0x0, 0x3cf1800000000000, 0x0, 0x0]

-- Masks with fully masked rows.
#eval show IO Unit from do
  let q := numbers 1 5 #[0xc012000000000000, 0xc047400000000000, 0xc042c00000000000,
    0xc046c00000000000, 0xc04e400000000000]
  let k := numbers 1 5 #[0x3ff6000000000000, 0xc012c00000000000, 0x4013c00000000000,
    0xc005000000000000, 0xc000800000000000]
  let v := numbers 1 5 #[0x400c800000000000, 0xc019400000000000, 0xbfc8000000000000,
    0xc010800000000000, 0xbfe2000000000000]
  let mask := booleans 1 1 #[false]
  let grad_out := numbers 1 5 #[0xc00c000000000000, 0x401e000000000000, 0xc017400000000000,
    0xc008800000000000, 0x4011400000000000]
  let out := Spec.scaledDotProductAttentionBackward
      ({ Q := q, K := k, V := v, mask := (some mask) } :
        Spec.AttentionContext Float 1 1 5 (by decide) (by decide)) grad_out
  check "scaled_dot_product_attention_vjp/float64/001 dq" out.1
    #[0x0, 0x0, 0x0, 0x0, 0x0]
    #[0x0, 0x0, 0x0, 0x0, 0x0]
    #[0x0, 0x0, 0x0, 0x0, 0x0]
  check "scaled_dot_product_attention_vjp/float64/001 dk" out.2.1
    #[0x0, 0x0, 0x0, 0x0, 0x0]
    #[0x0, 0x0, 0x0, 0x0, 0x0]
    #[0x0, 0x0, 0x0, 0x0, 0x0]
  check "scaled_dot_product_attention_vjp/float64/001 dv" out.2.2
    #[0x0, 0x0, 0x0, 0x0, 0x0]
    #[0x0, 0x0, 0x0, 0x0, 0x0]
    #[0x0, 0x0, 0x0, 0x0, 0x0]

-- Masks with fully masked rows.
#eval show IO Unit from do
  let q := numbers 1 3 #[0xc01fe257bc29666e, 0x40059dcf040b9240, 0x4014652742f3208c]
  let k := numbers 5 3 #[0xbffec5c8066015a8, 0xc001e0ad19f639b8, 0xbfdffe855a2a9ee0,
    0x400d30f583f131bc, 0xc015d2f1ffc03508, 0xc010ce05f2f28f14, 0x3ffedd540c90e030,
    0x4008ab7f5f431fe4, 0x4014cb43ba837104, 0xc013d4ca8720c590, 0x401cadbb310b24a0,
    0x3fc7ec58c8f81340, 0xc007836a61e66b3c, 0xbffb3a72ea21e6b0, 0x40075e1134867490]
  let v := numbers 5 3 #[0xbfcaa65218597220, 0xbfda7977ab2faf00, 0x3f80551f2374a980,
    0x3fefc55adbf3b8a4, 0x3fe3a9e2da7585b0, 0xbfeae62b5cfb08a0, 0x3fe8c60f421a7b36,
    0xbfd7bc696dd06370, 0x3fd24eb8dfe5b590, 0xbfe944fc692fd35e, 0x3fbf11505cdca5b0,
    0xbfec5abe6c10c33e, 0xbfc0b2d7bde9c270, 0x3fe4f5f726c71bce, 0xbfe37060e26c3d86]
  let mask := booleans 1 5 #[false, false, false, false, false]
  let dq := numbers 1 3 #[0x4012e7347a1bb81c, 0x4014d8720e5ac0cc, 0x401a6d5e7fc52cdc]
  let dk := numbers 5 3 #[0xc002a14b6b35249c, 0xc006167ddb03e474, 0xc00a8988a937959c,
    0x401a9e12719d173e, 0x400ff572e4b21874, 0xc0057b91f7e98034, 0x401dedc2406b7640,
    0xbfda571761c3fb40, 0x4016183e45826b86, 0x4013a1cd51fd3c2a, 0x3ff94b1a1b1385f8,
    0x401b1229a54bddcc, 0x40144cd3e00f7ec6, 0x3ffe1687acd96768, 0xc007c9229bf43540]
  let dv := numbers 5 3 #[0xbfd4b91b24f4bf40, 0x400180772524bac4, 0xc009e66d6f73a348,
    0x3fe5b0f760a697f0, 0x3fc95d6b685fa600, 0x4015bd9dc17740fe, 0xc0076310af65f184,
    0x3fc8d576f1b355c0, 0xc00f1ebe6aaf4e0c, 0xc01b194c422eeebc, 0x4016e29870bc0012,
    0x4010de67c9056cfc, 0xc017c12a7b85c322, 0x4000fccd4bf17ea0, 0xc01be086dd72be9c]
  let out := Spec.scaledDotProductAttentionJvp
      ({ Q := q, K := k, V := v, mask := (some mask) } :
        Spec.AttentionContext Float 1 5 3 (by decide) (by decide)) dq dk dv
  check "scaled_dot_product_attention_jvp/float64/000 dout" out
    #[0x0, 0x0, 0x0]
    #[0x0, 0x0, 0x0]
    #[0x0, 0x0, 0x0]

-- Masks with axes of size 1, or with fewer axes.
#eval show IO Unit from do
  let q := numbers 3 4 #[0x4049800000000000, 0xc026000000000000, 0xc031000000000000,
    0x4016000000000000, 0xc043000000000000, 0xc049000000000000, 0xc037000000000000,
    0xc02c000000000000, 0x4008000000000000, 0xc04d000000000000, 0x4043c00000000000,
    0xc04fc00000000000]
  let k := numbers 3 4 #[0x3ff1000000000000, 0xbfdc000000000000, 0x4019c00000000000,
    0x4008000000000000, 0xbfc0000000000000, 0x4002000000000000, 0xc013400000000000,
    0x3ff3000000000000, 0x4004000000000000, 0xc001000000000000, 0xc010000000000000,
    0x401ec00000000000]
  let v := numbers 3 4 #[0x3fbc000000000000, 0x0, 0x0, 0x0, 0xbfe1400000000000, 0x0, 0x0, 0x0,
    0xbfba000000000000, 0x0, 0x0, 0x0]
  let mask := booleans 3 3 #[false, true, true, false, false, true, false, false, true]
  let dq := numbers 3 4 #[0xc019000000000000, 0x400a000000000000, 0xc000800000000000,
    0xc01e800000000000, 0x4011400000000000, 0x3ffd000000000000, 0xc016000000000000,
    0xc016000000000000, 0x4000800000000000, 0xc012400000000000, 0xc00e800000000000,
    0x4010c00000000000]
  let dk := numbers 3 4 #[0x4001000000000000, 0x4008800000000000, 0xc01bc00000000000,
    0xbfe0000000000000, 0xc008800000000000, 0x4018800000000000, 0xc018400000000000,
    0xc00f800000000000, 0xc00b800000000000, 0xc01fc00000000000, 0x401f800000000000,
    0xc01e400000000000]
  let dv := numbers 3 4 #[0x401ec00000000000, 0x0, 0x0, 0x0, 0xc00d800000000000, 0x0, 0x0, 0x0,
    0xc003000000000000, 0x0, 0x0, 0x0]
  let out := Spec.scaledDotProductAttentionJvp
      ({ Q := q, K := k, V := v, mask := (some mask) } :
        Spec.AttentionContext Float 3 3 4 (by decide) (by decide)) dq dk dv
  check "scaled_dot_product_attention_jvp/float64/006 dout" out
    #[0xc003000000000002, 0x0, 0x0, 0x0, 0xc003000000000000, 0x0, 0x0, 0x0, 0xc003000000000000, 0x0,
    0x0, 0x0]
    #[0xc002fffffffffffe, 0x0, 0x0, 0x0, 0xc003000000000000, 0x0, 0x0, 0x0, 0xc003000000000000, 0x0,
    0x0, 0x0]
    #[0x3deac00000000000, 0x0, 0x0, 0x0, 0x3dc4600000000000, 0x0, 0x0, 0x0, 0x3e19c00000000000, 0x0,
    0x0, 0x0]

-- Sizes of 1 to 3.
#eval show IO Unit from do
  let x := numbers 2 1 #[0xbfff4b83860a65f0, 0xbff9c278c36319a0]
  let wq := numbers 1 (2 * 3) #[0xc000d1e58c24abce, 0x40050d4fca256a30, 0xc00f3ec6d13bbf2a,
    0x4006a7a1795a9aa4, 0xc00ce2d2a8ea3e72, 0xbfd2482089977910]
  let wk := numbers 1 (2 * 3) #[0x3fb238668c9873e0, 0xbfcabfb7d05b70f8, 0x3fb2c62937c93b10,
    0x3fac355aa7861cd0, 0x3fc3ca4abc88f8c0, 0xbfb7d70805c5278c]
  let wv := numbers 1 (2 * 3) #[0x3fcf950c843f6cb2, 0x3fbaeff85063648c, 0x3fb0690cf6f3b41c,
    0xbf9e048730b11700, 0xbfc28145a610578a, 0x3fc93cc1a0bfe8fa]
  let wo := numbers (2 * 3) 1 #[0x3ff62932b67d57fe, 0xbfe83df05012a554, 0xbff78f4fdcf28a38,
    0x3fe7b6282d94dbe8, 0x3ff760e972667032, 0x3fe6999870632304]
  let mask := booleans 2 2 #[true, false, true, true]
  let out := Spec.MultiHeadAttention.forward 2 (by decide)
      ({ queryWeight := wq, keyWeight := wk, valueWeight := wv, outputWeight := wo } :
        Spec.MultiHeadAttention Float 2 1 3) x (some mask)
  check "multi_head_attention/float64/000 out" out
    #[0xbfc2821f2233f996, 0xbfc069bea6c42e15]
    #[0xbfc2821f2233f992, 0xbfc069bea6c42e11]
    #[0x3d3ea00000000000, 0x3d35600000000000]

-- Scores of every size that the formats have.
#eval show IO Unit from do
  let x := numbers 6 3 #[0xbfe27c36fe8b93e7, 0xbfaae2643f0c2c87, 0xbff6881209eee3af,
    0xbfec008f1ceded85, 0x3fc5863c196d1e8c, 0xbfba28bc3aa25272, 0x4000dcadaf8199ec,
    0x3fd07b41d8b6b0c3, 0x3fccf0148423d123, 0x3ff5025357269dc3, 0xbfac894430221841,
    0x3fe989573f9f0311, 0x3fd43ecb92bf3731, 0x3ff93c1f7eb1f292, 0x3fe1846c7222686c,
    0xbff01e390628907a, 0xbfa1dbba65269c1e, 0x3fe5f68de0903f8b]
  let wq := numbers 3 (2 * 2) #[0xc0a31f788a645c93, 0xc0792cd2cf8c5536, 0x4086d1d04d11f8d4,
    0xc090772ce041e304, 0xc082acc1ae03e337, 0xc0945c5878b4ba62, 0xc005d597e7f47394,
    0xc01d196b00113858, 0xc00bc39623ef18f0, 0xc0900880cbc46ea6, 0x409acb3ea8d314db,
    0xc098666d8c26ba68]
  let wk := numbers 3 (2 * 2) #[0xbf66aa40da1efec5, 0x3fbbd04c7c413a80, 0x3fd64bc9e3e316bb,
    0xbfcb61c6bb05cc6b, 0xbf92bdee35043124, 0x3fcd08b728d8586c, 0x3fc83198616a32a6,
    0xbf9bdeba8ef54a10, 0xbfa9592ad390244e, 0xbfb89e882b7891b5, 0x3faaefc010403929,
    0x3fc40c0dd81485f2]
  let wv := numbers 3 (2 * 2) #[0x3f9107e6fd3204f9, 0xbf992dc2a9a49aee, 0x3f4c7718fa20c0a8,
    0x3f6869d6e2107da8, 0xbf72b17ed2d3d80a, 0x3f8019f579024f77, 0x3f8a835fa2c0dfde,
    0x3f8baaefe0079472, 0x3f9631358b796ad1, 0xbf7576797c214c38, 0xbf944aeba3980398,
    0xbf85abae0b4a44f0]
  let wo := numbers (2 * 2) 3 #[0xbf96eb280eecfece, 0xbfb5cf74a086cdaa, 0x3f753def3d5f199e,
    0x3fb23bb6578ae99f, 0x3f88f49b100954a3, 0xbfc0721832fddb7a, 0x3fc50dab5cd8d96e,
    0xbf71a61f5283cf3e, 0xbfb8e6d4cd52f240, 0xbfa32a7f032fae90, 0xbfb3e893b333331f,
    0xbfb9029e31a10e98]
  let mask := booleans 6 6 #[true, false, false, false, false, false, true, true, false, false,
    false, false, true, true, true, false, false, false, true, true, true, true, false, false, true,
    true, true, true, true, false, true, true, true, true, true, true]
  let out := Spec.MultiHeadAttention.forward 6 (by decide)
      ({ queryWeight := wq, keyWeight := wk, valueWeight := wv, outputWeight := wo } :
        Spec.MultiHeadAttention Float 2 3 2) x (some mask)
  check "multi_head_attention/float64/001 out" out
    #[0x3f79ecf44b5e1cdd, 0x3f6510628f2981f4, 0xbf7ba059938c433d, 0x3f681300ef301ef9,
    0x3f6d5afc3ee7b1e6, 0xbf6b50c97c1a6224, 0x3f5f084dbe358390, 0x3f53b526fc99e287,
    0xbf6fca1f3f2d4941, 0xbf6e179358217024, 0xbf71f2328a74194e, 0x3f7109a691241bb9,
    0x3f5f084dbe358390, 0x3f53b526fc99e287, 0xbf6fca1f3f2d4941, 0x3f6254070cfd8bf2,
    0x3f693bbc0d413dae, 0xbf6e6b50f8367ad9]
    #[0x3f79ecf44b5e1ce1, 0x3f6510628f2981f8, 0xbf7ba059938c4339, 0x3f681300ef301efd,
    0x3f6d5afc3ee7b1ea, 0xbf6b50c97c1a6220, 0x3f5f084dbe358394, 0x3f53b526fc99e28b,
    0xbf6fca1f3f2d493d, 0xbf6e179358217020, 0xbf71f2328a74194a, 0x3f7109a691241bbd,
    0x3f5f084dbe358394, 0x3f53b526fc99e28b, 0xbf6fca1f3f2d493d, 0x3f6254070cfd8bf6,
    0x3f693bbc0d413db2, 0xbf6e6b50f8367ad5]
    #[0x3d32000000000000, 0x3d1d400000000000, 0x3d2e800000000000, 0x3d08000000000000,
    0x3d07e00000000000, 0x3d08800000000000, 0x3d15600000000000, 0x3d1e200000000000,
    0x3d25000000000000, 0x3d1c600000000000, 0x3d23a00000000000, 0x3d2a800000000000,
    0x3d0f800000000000, 0x3d14000000000000, 0x3d1d200000000000, 0x3d06a00000000000,
    0x3d11200000000000, 0x3d10a00000000000]

-- Masks that all queries share.
#eval show IO Unit from do
  let x := numbers 2 2 #[0xc019c00000000000, 0x401c400000000000, 0x401b800000000000,
    0x3fe8000000000000]
  let wq := numbers 2 (2 * 1) #[0xbfda800000000000, 0xbfcb000000000000, 0xbfc0000000000000,
    0xbfca800000000000]
  let wk := numbers 2 (2 * 1) #[0xbfbf400000000000, 0x3fb4400000000000, 0x3f8e000000000000,
    0xbfbb000000000000]
  let wv := numbers 2 (2 * 1) #[0x3fce800000000000, 0x3fc1000000000000, 0xbfdd400000000000,
    0xbfc3000000000000]
  let wo := numbers (2 * 1) 2 #[0xbff5c00000000000, 0xbfef000000000000, 0xbfe4800000000000,
    0xbff8000000000000]
  let mask := booleans 2 2 #[true, true, true, true]
  let grad_out := numbers 2 2 #[0xc01e800000000000, 0xc011800000000000, 0xc00d800000000000,
    0x401e400000000000]
  let out := Spec.multiHeadAttentionBackward (by decide)
      ({ queryWeight := wq, keyWeight := wk, valueWeight := wv, outputWeight := wo } :
        Spec.MultiHeadAttention Float 2 2 1) x (some mask) grad_out
  check "multi_head_attention_vjp/float64/004 dx" out.input
    #[0x400d63d7ceaebe61, 0xc01fad23062a40f7, 0xbfb5cc13424287ef, 0x3fdeb194f569d146]
    #[0x400d63d7ceaebe65, 0xc01fad23062a40f3, 0xbfb5cc13424287eb, 0x3fdeb194f569d14a]
    #[0x3d9cc00000000000, 0x3d86000000000000, 0x3d78400000000000, 0x3d71200000000000]
  check "multi_head_attention_vjp/float64/004 dwq" out.parameters.queryWeight
    #[0x40456893bbc0d065, 0xc0594364abf94b94, 0xc046db0f17a6febe, 0x4056de1041123415]
    #[0x40456893bbc0d069, 0xc0594364abf94b90, 0xc046db0f17a6feba, 0x4056de1041123419]
    #[0x3dd0200000000000, 0x3dbf400000000000, 0x3dd0c00000000000, 0x3da3800000000000]
  check "multi_head_attention_vjp/float64/004 dwk" out.parameters.keyWeight
    #[0x4057482c9b013852, 0x40326c8e7c8f0448, 0xc046145f2f3e73ed, 0xc02178fa822513b3]
    #[0x4057482c9b013856, 0x40326c8e7c8f044c, 0xc046145f2f3e73e9, 0xc02178fa822513af]
    #[0x3de2400000000000, 0x3dc1200000000000, 0x3de1400000000000, 0x3dc1000000000000]
  check "multi_head_attention_vjp/float64/004 dwv" out.parameters.valueWeight
    #[0xc05941c361a925f7, 0x4047325c131cec74, 0x40584c05be88b1d7, 0xc02838c5b3467c01]
    #[0xc05941c361a925f3, 0x4047325c131cec78, 0x40584c05be88b1db, 0xc02838c5b3467bfd]
    #[0x3d9fc00000000000, 0x3d9d400000000000, 0x3d9c200000000000, 0x3d99a00000000000]
  check "multi_head_attention_vjp/float64/004 dwo" out.parameters.outputWeight
    #[0x403d9bce9c44b363, 0x403d27148101c7ac, 0x40271761ae557a91, 0xc02479708ef70f0b]
    #[0x403d9bce9c44b367, 0x403d27148101c7b0, 0x40271761ae557a95, 0xc02479708ef70f07]
    #[0x3d86400000000000, 0x3d81c00000000000, 0x3d6a000000000000, 0x3d73600000000000]

-- Sizes of 1 to 3.
#eval show IO Unit from do
  let x := numbers 2 5 #[0xbfe90ce43ab79108, 0xbfcb072ec6c1b915, 0x3ff09056e85d1608,
    0xbff054de07d01599, 0xbfe99d98972614f3, 0xbfed740889216d3f, 0xbfddd815a32e4585,
    0x3fe9fff10a74df7e, 0x3fe43dbf59f46e70, 0x3fd464b0e91c35b8]
  let wq := numbers 5 (2 * 1) #[0xbfc1b3cf307e3314, 0xbf80638c7a35372b, 0x3fb36b56deaa2c52,
    0xbf9b9eeb7ae41a6e, 0x3fb05afc29ea485d, 0x3fae5a4fe3addf4d, 0xbfa474e4d72ca9fe,
    0x3fbbdcc49f26812b, 0xbf8c0288d04bc978, 0xbf5f0f41ef3d60be]
  let wk := numbers 5 (2 * 1) #[0xbfd4e6978da5a38d, 0x3fc5aff91b694100, 0x3f5b45a8f36de3fa,
    0x3fc7c5c881cbb8f6, 0x3faad134afa9f9bc, 0xbfd3564c353ab768, 0x3fd34b2f04962272,
    0x3fd7eadfedfd6b06, 0xbf8746e3a95d57e7, 0x3fbf79cf3e6ef5e6]
  let wv := numbers 5 (2 * 1) #[0x3fdc124d95b013c8, 0x3fc8df43a7e221ea, 0x3fcdad0e555f69b7,
    0x3fd46e5bb274086d, 0x3fb03927db503ee9, 0x3fbd6a2da3c7e52a, 0x3fb07c24d5d0dcd9,
    0x3fd73fc2f3da2b3f, 0xbfd2d97e5b87b7bd, 0xbfe1eff2d9c87a63]
  let wo := numbers (2 * 1) 5 #[0x3f908a5290d3ad20, 0xbf9822c070e91703, 0xbfac1aeb13ceb58c,
    0xbfc58308db65a291, 0xbfb4bc95c0709c5a, 0x3fa7b6a32dff140f, 0xbfb43b90221211c1,
    0x3f904faca02c3956, 0x3fa7acfdc5d4df62, 0xbfa4effe13fc19f7]
  let dx := numbers 2 5 #[0xbfd50f27ec0a144c, 0x3fb706b25a51f4cb, 0x3fe3abc7302b753d,
    0xbfdf46c06091298c, 0xbfe7e6dc63aa3c71, 0x3fb403ef86795819, 0xbfe7560b9b488950,
    0xbfe2790c8dee2837, 0xbfda74212450e4c1, 0xbfe10190155f5202]
  let dwq := numbers 5 (2 * 1) #[0xbfd35bcf349792d3, 0x3fe1552cc7ce7c53, 0xbff6a48101b96055,
    0xbfc81c81deded5f2, 0x3fd6762ec3da28ad, 0xbfabdc5d8fdfe378, 0x3feffd00b02675ce,
    0xbfc0e4f23daedbca, 0x3fe985a279145486, 0x3fbe164c611147ed]
  let dwk := numbers 5 (2 * 1) #[0xbfe6576e37435fc2, 0x3fc840b7b73f6733, 0xbffaa661a6656d79,
    0x3fd5cfbfa97f038e, 0x3ff3fa12978d69d8, 0x3fe96c51973ad26d, 0xbfe6c5c78ba926d1,
    0x3ff09004cb58371e, 0x3fcec9d85baf9323, 0x3fe241eb19298d73]
  let dwv := numbers 5 (2 * 1) #[0xbfe40a6f8428f02d, 0xbfccbed62615cb6e, 0xbfbafe7aaebf2e5f,
    0xbff71d267e067064, 0xbfc648914d42c85b, 0x3fe8b3b61cf720b0, 0x3fe29c5e16483574,
    0xc0073ce308e3b701, 0xbfe4507477bfa080, 0xbff52932fa1e9abb]
  let dwo := numbers (2 * 1) 5 #[0xbfb5507dd0c6128b, 0xbff7da84822509b1, 0x3f94ec5a71b820ce,
    0xc0005efa7e793309, 0x3fb85d72fde32cf5, 0xbfab1b2b8d6124b9, 0x3ff69561c8ff8797,
    0x3fbbc826186c7ea3, 0x3fb0dd5aad623c7e, 0x3fe139146150920a]
  let out := Spec.multiHeadAttentionJvp (by decide)
      ({ queryWeight := wq, keyWeight := wk, valueWeight := wv, outputWeight := wo } :
        Spec.MultiHeadAttention Float 2 5 1)
      ({ queryWeight := dwq, keyWeight := dwk, valueWeight := dwv, outputWeight := dwo } :
        Spec.MultiHeadAttention Float 2 5 1) x dx none
  check "multi_head_attention_jvp/float64/009 dout" out
    #[0x3fc3bad946f8a246, 0x3fc5722bdfb638e4, 0xbf82553b3769b598, 0x3fe71044f99fa787,
    0xbfcd532066a82597, 0x3fc2204774df1514, 0x3fc64f035ebbc97b, 0xbf770b0bcc6d332c,
    0x3fe727231075ca29, 0xbfcb151219f23d35]
    #[0x3fc3bad946f8a24a, 0x3fc5722bdfb638e8, 0xbf82553b3769b594, 0x3fe71044f99fa78b,
    0xbfcd532066a82593, 0x3fc2204774df1518, 0x3fc64f035ebbc97f, 0xbf770b0bcc6d3328,
    0x3fe727231075ca2d, 0xbfcb151219f23d31]
    #[0x3d01a00000000000, 0x3d23e00000000000, 0x3cf6400000000000, 0x3d25400000000000,
    0x3d0ae00000000000, 0x3d02200000000000, 0x3d23c00000000000, 0x3cfce00000000000,
    0x3d27400000000000, 0x3d0fa00000000000]

-- Sizes and numbers of every kind.
#eval show IO Unit from do
  let x := numbers 3 8 #[0xbff8000000000000, 0xc011c00000000000, 0xc010800000000000,
    0xc014800000000000, 0xc016800000000000, 0x401d400000000000, 0xc017000000000000,
    0xc000800000000000, 0x4011800000000000, 0xc011000000000000, 0x4011800000000000,
    0x4001000000000000, 0x401f800000000000, 0xc011400000000000, 0x401f400000000000,
    0xbff4000000000000, 0xc014000000000000, 0x4019c00000000000, 0x401d400000000000,
    0x4002800000000000, 0xbff0000000000000, 0xc00a000000000000, 0xc017800000000000,
    0xc012c00000000000]
  let pos := numbers 3 8 #[0xbffc000000000000, 0xc015800000000000, 0xc00e800000000000,
    0xc004000000000000, 0x4014400000000000, 0xc014800000000000, 0xc00f800000000000,
    0x401a400000000000, 0xc014400000000000, 0xbfd8000000000000, 0x401f000000000000,
    0xbff8000000000000, 0xc004000000000000, 0xbff5000000000000, 0x401c400000000000,
    0xc017400000000000, 0x401e800000000000, 0x4017000000000000, 0x4006000000000000,
    0xc01d000000000000, 0xc01e000000000000, 0xbfe6000000000000, 0xc003800000000000,
    0x400e000000000000]
  let out := Spec.addPositionalEncodingSpec
      ({ pos := pos } : Spec.PositionalEncodingSpec 3 8 Float) x
  check "add_positional_encoding/float64/001 out" out
    #[0xc00a000000000000, 0xc023a00000000000, 0xc01fc00000000000, 0xc01e800000000000,
    0xbfe2000000000000, 0x4001800000000000, 0xc023600000000000, 0x4012000000000000,
    0xbfe6000000000000, 0xc012800000000000, 0x4028400000000000, 0x3fe4000000000000,
    0x4015800000000000, 0xc016800000000000, 0x402dc00000000000, 0xc01c400000000000,
    0x4005000000000000, 0x4028600000000000, 0x4024200000000000, 0xc013c00000000000,
    0xc021000000000000, 0xc00f800000000000, 0xc020a00000000000, 0xbfee000000000000]
    #[0xc00a000000000000, 0xc023a00000000000, 0xc01fc00000000000, 0xc01e800000000000,
    0xbfe2000000000000, 0x4001800000000000, 0xc023600000000000, 0x4012000000000000,
    0xbfe6000000000000, 0xc012800000000000, 0x4028400000000000, 0x3fe4000000000000,
    0x4015800000000000, 0xc016800000000000, 0x402dc00000000000, 0xc01c400000000000,
    0x4005000000000000, 0x4028600000000000, 0x4024200000000000, 0xc013c00000000000,
    0xc021000000000000, 0xc00f800000000000, 0xc020a00000000000, 0xbfee000000000000]
    #[0x3cbbc00000000000, 0x3cd4e00000000000, 0x3cd0e00000000000, 0x3cd0400000000000,
    0x3c93400000000000, 0x3cb2a00000000000, 0x3cd4a00000000000, 0x3cc3400000000000,
    0x3c97800000000000, 0x3cc3c00000000000, 0x3cd9e00000000000, 0x3c95600000000000,
    0x3cc6e00000000000, 0x3cc8000000000000, 0x3cdfa00000000000, 0x3cce200000000000,
    0x3cb6600000000000, 0x3cda000000000000, 0x3cd5800000000000, 0x3cc5000000000000,
    0x3cd2200000000000, 0x3cc0c00000000000, 0x3cd1c00000000000, 0x3ca0000000000000]

-- Widths whose last column is a sine.
#eval show IO Unit from do
  let out := Spec.sinusoidalPositionalEncodingSpec (α := Float) 3 5 719031
  check "sinusoidal_positional_encoding/float64/000 encoding" out
    #[0x3feb3e6b15005971, 0xbfe0c93fe13abc4f, 0xbfccad783c371e0a, 0xbfef2fc06c472c13,
    0x3feebbdb57d4d206, 0x3f930912584c6a50, 0xbfeffe959ef0be95, 0xbfcfcd3d8ea96bad,
    0xbfeeff22b5a360f6, 0x3feebd4b7a423adc, 0xbfea99dc2c201eff, 0xbfe1c988a782de54,
    0xbfd173eff78bc72c, 0xbfeec983570ea54f, 0x3feebebacf5f9919]
    #[0x3feb3e6b15005975, 0xbfe0c93fe13abc4b, 0xbfccad783c371e06, 0xbfef2fc06c472c0f,
    0x3feebbdb57d4d20a, 0x3f930912584c6a54, 0xbfeffe959ef0be91, 0xbfcfcd3d8ea96ba9,
    0xbfeeff22b5a360f2, 0x3feebd4b7a423ae0, 0xbfea99dc2c201efb, 0xbfe1c988a782de50,
    0xbfd173eff78bc728, 0xbfeec983570ea54b, 0x3feebebacf5f991d]
    #[0x3ccf400000000000, 0x3ccde00000000000, 0x3dc8c00000000000, 0x3dc8c00000000000,
    0x3d7e400000000000, 0x3ccbc00000000000, 0x3ccfe00000000000, 0x3dc8c00000000000,
    0x3dc8c00000000000, 0x3d7e400000000000, 0x3ccf400000000000, 0x3cd0200000000000,
    0x3dc8c00000000000, 0x3dc8c00000000000, 0x3d7e400000000000]

-- Widths whose last column is a sine.
#eval show IO Unit from do
  let out := Spec.sinusoidalPositionalEncodingSpec (α := Float) 1 1 361655
  check "sinusoidal_positional_encoding/float64/001 encoding" out
    #[0x3fed08e61e8ff3f4]
    #[0x3fed08e61e8ff3f8]
    #[0x3ccf800000000000]

-- Sizes, masks and numbers of every kind.
#eval show IO Unit from do
  let x := numbers 2 2 #[0xbff3838bb8d59f28, 0x40118f84c6895e82, 0xc0015fd7d4aa8d90,
    0xbfbfd6f4eeea4a00]
  let out := Spec.ropeApplySpec x 3
  check "rope/float64/001 out" out
    #[0x3fe2cfd83bfc20e0, 0xc01212c5c939e0ec, 0x3ff5351126b2776f, 0x3ffb99442c6a2cea]
    #[0x3fe2cfd83bfc20e4, 0xc01212c5c939e0e8, 0x3ff5351126b27773, 0x3ffb99442c6a2cee]
    #[0x3cf8400000000000, 0x3cff600000000000, 0x3ce8800000000000, 0x3ce9a00000000000]

-- Odd widths: the last channel has no partner.
#eval show IO Unit from do
  let x := numbers 3 5 #[0xbff8000000000000, 0x4002800000000000, 0x4005000000000000,
    0xc020000000000000, 0xbfe0000000000000, 0xc01e000000000000, 0xbfd4000000000000,
    0x4009000000000000, 0x3ff0000000000000, 0x400e000000000000, 0x4014400000000000,
    0x4007800000000000, 0x4014000000000000, 0xbfe2000000000000, 0x401b000000000000]
  let out := Spec.ropeApplySpec x 254
  check "rope/float64/012 out" out
    #[0x3fd2bce98c0e5752, 0xc005ed23e4be618c, 0x400b19956f4a4472, 0xc01ed5245ba2f137,
    0xbfe0000000000000, 0x40193c7246490226, 0x40104506608ca1a4, 0x4007d6d78225dfb3,
    0x3ff5f8cfb2cdecb5, 0x400e000000000000, 0x4005deaf57d962bb, 0xc014b395c624cde2,
    0x40141d1a91bd6dfc, 0x3fc6acd22b1f5578, 0x401b000000000000]
    #[0x3fd2bce98c0e5756, 0xc005ed23e4be6188, 0x400b19956f4a4476, 0xc01ed5245ba2f133,
    0xbfe0000000000000, 0x40193c724649022a, 0x40104506608ca1a8, 0x4007d6d78225dfb7,
    0x3ff5f8cfb2cdecb9, 0x400e000000000000, 0x4005deaf57d962bf, 0xc014b395c624cdde,
    0x40141d1a91bd6e00, 0x3fc6acd22b1f557c, 0x401b000000000000]
    #[0x3cf3800000000000, 0x3cf4800000000000, 0x3d49200000000000, 0x3d49a00000000000, 0x0,
    0x3d06600000000000, 0x3d03000000000000, 0x3d34000000000000, 0x3d33a00000000000, 0x0,
    0x3d02000000000000, 0x3d04c00000000000, 0x3d3b200000000000, 0x3d3a800000000000, 0x0]

end CertifiedVectors
