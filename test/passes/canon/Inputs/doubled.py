"""A function along two axes, doubled 40 times along one of them before it is summed."""
print("""module attn
dim S dyn
func program @norm(%K: tensor<f32[S, 16]> in, %O: tensor<f32[S, 16]> out)
    axes(k par S, d vec 16, e vec 16) {
  %k = index() {axis = k} : i64{k}
  %d = index() {axis = d} : i64{d}
  %e = index() {axis = e} : i64{e}
  %x.e = load(%K, %k, %e) : f32{k,e}
  %p0 = sin(%x.e) : f32{k,e}""")
for i in range(40):
    print(f"  %p{i + 1} = mul(%p{i}, %p{i}) : f32{{k,e}}")
print("""  %n = reduce(%p40) {kind = sum, over = [e]} : f32{k}
  %x = load(%K, %k, %d) : f32{k,d}
  %y = sin(%x) : f32{k,d}
  %o = mul(%y, %n) : f32{k,d}
  store(%O, %o, %k, %d)
}""")
