/** NumPy's file format, version 1.0, for one float32 array. */

/**
 * @param {Buffer} data little-endian float32, in C order
 * @param {number[]} shape
 * @returns {Buffer}
 */
export function npyFile(data, shape) {
  const items = shape.reduce((product, length) => product * length, 1);
  if (items * 4 !== data.length) throw new Error(`shape ${shape} does not hold ${data.length} bytes`);
  const dictionary = `{'descr': '<f4', 'fortran_order': False, 'shape': (${shape.join(', ')}${shape.length === 1 ? ',' : ''}), }`;
  const prefix = 10;
  // The data begins at a multiple of 64 bytes, and the header ends with a newline.
  const length = Math.ceil((prefix + dictionary.length + 1) / 64) * 64 - prefix;
  const header = Buffer.from(`${dictionary.padEnd(length - 1)}\n`, 'latin1');
  const start = Buffer.from([0x93, ...Buffer.from('NUMPY'), 1, 0, length & 0xff, length >> 8]);
  return Buffer.concat([start, header, data]);
}
