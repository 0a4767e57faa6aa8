-- A session without its entries. ARGV: 3 whether to count its snapshots.
return {describe(), ARGV[3] == '1' and is_active(s) and count_part(2) or 0}
